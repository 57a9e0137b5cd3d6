//! Interruption of a measurement, for example by Ctrl-C. The first SIGINT or SIGTERM ends the measurement cleanly and
//! keeps the results so far. The second signal ends the program immediately.

use std::io;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag as on_signal;

use crate::output::{Failure, INTERRUPTED};

/// Interval at which a sleeping thread checks whether the user has interrupted the program.
const LOOK: Duration = Duration::from_millis(20);

static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Returns the flag that is set when the user interrupts the program.
pub(crate) fn flag() -> Arc<AtomicBool> {
    Arc::clone(ASKED.get_or_init(Arc::default))
}

/// Returns true if the user has interrupted the program.
pub(crate) fn is_asked() -> bool {
    flag().load(Ordering::Relaxed)
}

/// Installs the handlers of SIGINT and SIGTERM.
///
/// # Errors
/// Returns an error if the system does not allow signal handlers.
pub(crate) fn install_handlers() -> Result<(), Failure> {
    let register = || -> io::Result<()> {
        for signal in [SIGINT, SIGTERM] {
            // The order of the two registrations matters: at the first signal, the flag is still unset when the
            // conditional shutdown checks it.
            on_signal::register_conditional_shutdown(signal, INTERRUPTED.into(), flag())?;
            on_signal::register(signal, flag())?;
        }
        Ok(())
    };
    register().map_err(Failure::environment)
}

/// Sleeps for the duration `time`, or until the user interrupts the program.
pub(crate) fn sleep(time: Duration) {
    let end = Instant::now() + time;
    while !is_asked() && Instant::now() < end {
        thread::sleep(LOOK.min(end.saturating_duration_since(Instant::now())));
    }
}
