//! Burst size of the sender: the smallest size that leaves other threads their share of the CPU.
//!
//! For a sender that sleeps, each wake-up costs many times as much CPU time as a query (timer, interrupt, context
//! switch; on a virtual machine also the hypervisor). On a CPU that it shares with AuthDNS, the Measurer must not use
//! time that AuthDNS needs. Otherwise the DUT waits for answers, and the delay counts against the DUT. The costs are
//! therefore measured before the first trial. Queries are sent in runs, each with one wake-up. The length of a run is
//! the smallest at which the sender uses at most a third of the CPU. The cost of a query includes sending the query and
//! receiving its reply, because the receiver may run on the same CPU:
//!
//! ```text
//! rate · (cost of a query) + rate ÷ run · (cost of a wake-up) ≤ 1/3      run ≥ rate · wake ÷ (1/3 − rate · query)
//! ```

use std::fmt;
use std::io;
use std::str::FromStr;
use std::time::Duration;

use net::affinity::{pin_to, use_short_time_slices};
use net::batch::{BATCH, ReceiveBatch, Wait};
use net::clock;
use net::socket::Endpoint;
use serde::{Deserialize, Serialize};
use units::{CpuId, Nanos};

/// Maximum share of a CPU that a sender and its receiver together use if both run on this CPU.
const MOST: f64 = 1.0 / 3.0;
/// Maximum burst window. Batching moves a query from its schedule by at most this time.
pub const LONGEST: Nanos = Nanos::from_millis(1);
/// Burst window for a sender on an exclusive CPU. A burst window is the maximum time between queries that are sent
/// together.
pub const SHORTEST: Nanos = Nanos::from_micros(50);
/// Number of wake-ups in each measurement of their cost.
const WAKE_UPS: u32 = 100;
/// Time between two wake-ups in a measurement of their cost.
const APART: Nanos = Nanos::from_micros(100);
/// Number of queries sent together while the cost of a query is measured.
const TOGETHER: u32 = 8;
/// Number of measurements. The result is their median.
const LOOKS: usize = 5;
/// Payload of the datagrams sent for the measurement. It is as long as a query.
const DATAGRAM: [u8; 51] = [0; 51];

/// Maximum deviation of a query from its schedule because of batching.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
pub enum Burst {
    /// Shortest burst window with which the sender uses at most a third of a shared CPU. The window is limited to
    /// [`LONGEST`].
    #[default]
    Auto,
    /// Maximum deviation of a query from its schedule, as given by the user.
    Fixed(Nanos),
}

impl FromStr for Burst {
    type Err = String;

    fn from_str(text: &str) -> Result<Burst, String> {
        if text == "auto" {
            return Ok(Burst::Auto);
        }
        let time = humantime::parse_duration(text)
            .map_err(|e| format!("{e}; write auto, or a time such as 200us"))?;
        Ok(Burst::Fixed(time.into()))
    }
}

impl TryFrom<String> for Burst {
    type Error = String;

    fn try_from(text: String) -> Result<Burst, String> {
        text.parse()
    }
}

impl fmt::Display for Burst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Burst::Auto => f.write_str("auto"),
            Burst::Fixed(time) => humantime::format_duration(Duration::from(*time)).fmt(f),
        }
    }
}

impl From<Burst> for String {
    fn from(burst: Burst) -> String {
        burst.to_string()
    }
}

/// Cost of sending on this host, as CPU time of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SendCost {
    /// Cost of sleeping and waking up once.
    pub wake_up: Nanos,
    /// Cost of sending one query and reading one reply, including the kernel's work on this CPU.
    pub query: Nanos,
}

impl SendCost {
    /// Measures the CPU cost of sending on `cpu`, or on any CPU if `cpu` is `None`. The measurement takes about 100 ms
    /// and sends datagrams from this host to itself.
    ///
    /// # Errors
    /// Returns an error if no loopback interface is up, or if there is no such CPU.
    pub fn measure(cpu: Option<CpuId>) -> io::Result<SendCost> {
        let work = move || -> io::Result<SendCost> {
            if let Some(cpu) = cpu {
                pin_to(cpu)?;
            }
            clock::use_exact_timers();
            use_short_time_slices();
            let sink = Endpoint::listen(([127, 0, 0, 1], 0).into(), 1)?.remove(0);
            let source = Endpoint::connect(sink.local_address()?)?;
            let mut batch = ReceiveBatch::new(DATAGRAM.len());
            let mut median = |together| {
                let mut looks: Vec<u64> =
                    (0..LOOKS).map(|_| sample(&source, &sink, &mut batch, together)).collect();
                looks.sort_unstable();
                looks[LOOKS / 2]
            };
            let (one, many) = (median(1), median(TOGETHER));
            let query = many.saturating_sub(one) / u64::from(TOGETHER - 1);
            Ok(SendCost { wake_up: Nanos(one.saturating_sub(query)), query: Nanos(query) })
        };
        std::thread::spawn(work).join().map_err(|_| io::Error::other("the measurement panicked"))?
    }

    /// Returns the burst window with which a sender of `rate` queries per second uses at most a third of its CPU.
    /// `rate` must be above 0. The window is 0 if the sender can send queries one by one without using more than a
    /// third.
    ///
    /// If the necessary window is longer than [`LONGEST`], the result is [`LONGEST`], and the sender uses more than a
    /// third of its CPU. For a sender on an exclusive CPU, the window [`SHORTEST`] is used instead of this function's
    /// result.
    pub fn burst(&self, rate: f64) -> Nanos {
        let left = MOST - rate * self.query.as_secs_f64();
        if left <= 0.0 {
            return LONGEST;
        }
        let run = (rate * self.wake_up.as_secs_f64() / left).ceil().max(1.0);
        // A run of n queries needs n intervals. The added nanosecond prevents rounding from losing the last interval.
        let needed = Nanos((run / rate * 1e9).ceil() as u64 + 1);
        if run <= 1.0 { Nanos(0) } else { needed.min(LONGEST) }
    }
}

/// Returns the CPU time of a wake-up in nanoseconds, including sending and reading `together` datagrams.
fn sample(source: &Endpoint, sink: &Endpoint, batch: &mut ReceiveBatch, together: u32) -> u64 {
    let (before, start) = (clock::thread_cpu_time(), clock::now());
    for n in 1..=WAKE_UPS {
        clock::sleep_until(Nanos(start.0 + APART.0 * u64::from(n)));
        for _ in 0..together {
            // A send error is ignored here, because it would also appear in the trial.
            let _ = source.send(&DATAGRAM);
        }
        // Several datagrams are read at a time, because a receiver also reads several replies at a time.
        if n.is_multiple_of(BATCH as u32 / TOGETHER) {
            let _ = batch.receive(sink, Wait::NonBlocking);
        }
    }
    clock::thread_cpu_time().since(before).0 / u64::from(WAKE_UPS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: SendCost = SendCost { wake_up: Nanos(30_000), query: Nanos(2_000) };

    /// Returns the share of the CPU that a burst uses.
    fn share(rate: f64, burst: Nanos) -> f64 {
        let run = (burst.0 as f64 / (1e9 / rate).floor()).floor().max(1.0);
        rate * 2e-6 + rate / run * 30e-6
    }

    #[test]
    fn the_burst_is_the_smallest_that_leaves_two_thirds() {
        for rate in [1_000.0, 20_000.0, 40_000.0, 100_000.0, 140_000.0] {
            let burst = COST.burst(rate);
            assert!(share(rate, burst) <= 1.0 / 3.0 + 0.01, "{rate}: {burst:?}");
            let shorter = Nanos(burst.0.saturating_sub((1e9 / rate) as u64));
            assert!(
                burst == Nanos(0) || share(rate, shorter) > 1.0 / 3.0 - 0.01,
                "{rate}: {shorter:?} would do"
            );
        }
        assert_eq!(COST.burst(1_000.0), Nanos(0), "each by itself");
        assert_eq!(COST.burst(400_000.0), LONGEST);
    }

    #[test]
    fn bursts_are_parsed_from_text() {
        assert_eq!("auto".parse(), Ok(Burst::Auto));
        assert_eq!("200us".parse(), Ok(Burst::Fixed(Nanos::from_micros(200))));
        assert!("often".parse::<Burst>().unwrap_err().contains("200us"));
        for burst in [Burst::Auto, Burst::Fixed(Nanos::from_micros(150))] {
            let text = serde_json::to_string(&burst).unwrap();
            assert_eq!(serde_json::from_str::<Burst>(&text).unwrap(), burst, "{text}");
        }
    }

    #[test]
    fn costs_are_measured() {
        let cost = SendCost::measure(None).unwrap();
        assert!(cost.wake_up > Nanos(0) && cost.wake_up < Nanos::from_millis(10), "{cost:?}");
    }
}
