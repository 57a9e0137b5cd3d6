//! What ours is compared with: the least that a server can do, and a sender as dns64perf++ is.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use method::units::CpuId;
use net::affinity::pin_to;
use net::batch::{ServerBatch, Wait};
use net::socket::Endpoint;

/// A null reflector: sends every datagram back as a response, `recvmmsg` and `sendmmsg` and nothing else, on one CPU. Prints
/// how many it sent back each second until it is ended.
pub(crate) fn reflect(address: SocketAddr, cpu: usize) -> Result<()> {
    pin_to(CpuId(cpu))?;
    let endpoint = Endpoint::listen(address, 1)?.remove(0);
    endpoint.set_receive_timeout(Duration::from_millis(100))?;
    let mut batch = ServerBatch::new(1500, 1500);
    let mut sent = 0;
    let mut shown = Instant::now();
    loop {
        let turn = batch.turn(&endpoint, Wait::ForOne, |query, _, out| {
            let len = query.bytes.len();
            out[..len].copy_from_slice(query.bytes);
            if let Some(flags) = out.get_mut(2) {
                *flags |= 0x80;
            }
            len
        })?;
        sent += turn.sent as u64;
        if shown.elapsed() > Duration::from_millis(500) {
            println!("{sent}");
            shown = Instant::now();
        }
    }
}

/// The share of `rate · seconds` queries that are answered within a quarter of a second, sent as dns64perf++ sends: one `send`
/// per query from one port, at t₁ + i·T by spinning (the papers' correction), one receiver, ordinary buffers.
pub(crate) fn classic(server: SocketAddr, rate: u64, seconds: u64) -> Result<f64> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(Duration::from_millis(50)))?;
    let total = rate * seconds;
    let start = Instant::now() + Duration::from_millis(20);
    let sent_at: Vec<AtomicU64> = (0..1 << 16).map(|_| AtomicU64::new(0)).collect();
    let over = AtomicBool::new(false);
    let valid = thread::scope(|scope| -> Result<u64> {
        let receiver = scope.spawn(|| {
            let mut valid = 0;
            let mut reply = [0; 512];
            while !over.load(Ordering::Relaxed) {
                let Ok(n) = socket.recv(&mut reply) else { continue };
                let id = usize::from(u16::from_be_bytes([reply[0], reply[1]]));
                let rtt = start.elapsed().as_nanos() as u64 - sent_at[id].load(Ordering::Relaxed);
                valid += u64::from(n > 12 && reply[3] & 15 == 0 && reply[7] > 0 && rtt < 250_000_000);
            }
            valid
        });
        let mut query = b"\0\0\x01\0\0\x01\0\0\0\0\0\0\x0f010-000-000-000\x09dns64perf\x04test\0\0\x1c\0\x01".to_vec();
        for i in 0..total {
            query[..2].copy_from_slice(&(i as u16).to_be_bytes());
            let label = format!("010-000-{:03}-{:03}", i >> 8 & 255, i & 255);
            query[13..28].copy_from_slice(label.as_bytes());
            let due = Duration::from_nanos(i * 1_000_000_000 / rate);
            while start.elapsed() < due || Instant::now() < start {
                std::hint::spin_loop();
            }
            sent_at[(i & 0xffff) as usize].store(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
            let _ = socket.send(&query);
        }
        thread::sleep(Duration::from_millis(300));
        over.store(true, Ordering::Relaxed);
        Ok(receiver.join().unwrap_or(0))
    })?;
    Ok(valid as f64 / total as f64)
}
