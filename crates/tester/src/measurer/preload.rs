//! Resolving names before a trial with a cached share, so that they are cached when it begins.

use std::net::Ipv4Addr;
use std::time::Duration;

use net::batch::{ReceiveBatch, Wait};
use net::clock;
use net::socket::Endpoint;
use rand::RngExt;
use wire::template::QueryTemplate;
use wire::view::Message;

use super::expect::Expectation;
use super::plan::TrialPlan;
use super::trial::TrialError;

/// Names asked at once: few enough for any DUT, many enough to be done soon.
const AT_ONCE: usize = 32;
/// How many times a name is asked before giving up.
const TRIES: u32 = 5;

/// Resolves the names that the trial's first cached queries repeat. Returns how many could not be resolved.
pub(super) fn preload(plan: &TrialPlan, expectation: &Expectation) -> Result<u64, TrialError> {
    let socket = |source| TrialError::Socket { server: plan.server, source };
    let (port, _strays) = Endpoint::client_pair(plan.server).map_err(socket)?;
    port.set_receive_timeout(Duration::from(plan.timeout).min(Duration::from_millis(100))).map_err(socket)?;
    let names: Vec<Ipv4Addr> = plan.name_sequence().preloaded().collect();
    let template = QueryTemplate::aaaa(&plan.domain);
    let mut batch = ReceiveBatch::new(4096);
    let mut missing = 0;
    for names in names.chunks(AT_ONCE) {
        let mut open: Vec<Ipv4Addr> = names.to_vec();
        for _ in 0..TRIES {
            if open.is_empty() {
                break;
            }
            let mut query = template.bytes().to_vec();
            for &name in &open {
                QueryTemplate::patch(&mut query, rand::rng().random(), name);
                // What cannot be sent is asked again with what was not answered.
                let _ = port.send(&query);
            }
            let give_up = clock::now() + plan.timeout;
            while !open.is_empty() && clock::now() < give_up {
                let _ = batch.receive(&port, Wait::ForOne);
                for datagram in batch.iter() {
                    let Some(message) = Message::new(datagram.bytes).filter(Message::is_response) else { continue };
                    // The id does not matter here: the question tells which name was answered.
                    open.retain(|&name| {
                        !(template.is_question_of(datagram.bytes, name)
                            && expectation.judge(&message, template.len(), name).is_ok())
                    });
                }
            }
        }
        missing += open.len() as u64;
        if missing > 0 && missing == AT_ONCE as u64 {
            // A server that resolves nothing at all is not asked for the other names too.
            return Ok(names.len() as u64);
        }
    }
    Ok(missing)
}
