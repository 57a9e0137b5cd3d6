//! Containment of panics. A panic ends only the work item in which it occurs, for example the
//! processing of one query. The process continues.
//!
//! ```text
//! thread ─► guard_thread ─► catch(one query's work) ── panic ──► Err(Panic): counted, logged, SERVFAIL
//!               │                                                   │ repeatedly
//!               └── a panic outside of catch, or too many ──────────┴──► the panic hook: the process ends
//! ```
//!
//! [`Tasks`] starts the tasks of an event loop and reports their panics. The event loop itself
//! would end a panicking task without a report.
//!
//! After unwinding, the changes made by the work item may be incomplete. The caller of [`catch`]
//! therefore abandons the work item. Other state is not affected.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use tokio::task::spawn_local;
use units::Nanos;

/// Maximum number of panics of one thread in a burst.
const AT_ONCE: u64 = 10;
/// Time after which one more panic of a thread is tolerated.
const EACH: Nanos = Nanos(60 * Nanos::SECOND.0);
/// Maximum length of a panic message in a report, in octets. The rest of the message is cut off.
const LONGEST: usize = 200;

thread_local! {
    /// True while this thread runs within [`guard_thread`], which catches its panics.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
    /// Source location of the last panic, recorded by the panic hook.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A panic that was caught.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Panic {
    message: String,
    place: Option<String>,
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{} ({place})", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// Returns true if the panic occurred within [`guard_thread`] and will therefore be caught. The
/// panic hook of the process ignores such a panic. This function also records the location of the
/// panic.
pub(crate) fn is_caught(panic: &PanicHookInfo<'_>) -> bool {
    let guarded = GUARDED.get();
    if guarded {
        PLACE.set(panic.location().map(ToString::to_string));
    }
    guarded
}

/// Runs the work of a thread. Within `work`, calls of [`catch`] can catch panics. Any other panic
/// ends `work`, and is raised again, so that the panic hook of the process handles it.
///
/// # Panics
/// Panics if `work` panics.
pub(crate) fn guard_thread(work: impl FnOnce()) {
    GUARDED.set(true);
    let result = catch(work);
    GUARDED.set(false);
    if let Err(panic) = result {
        panic!("{panic}");
    }
}

/// Runs `work` and catches a panic in it.
///
/// # Errors
/// Returns the panic if `work` panics.
#[inline]
pub(crate) fn catch<T>(work: impl FnOnce() -> T) -> Result<T, Panic> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("a panic");
        Panic { message: text[..text.floor_char_boundary(LONGEST)].to_owned(), place: PLACE.take() }
    })
}

/// Runs the asynchronous `work` and catches a panic in it, like [`catch`].
///
/// # Errors
/// Returns the panic if `work` panics.
pub(crate) async fn catch_async<T>(work: impl Future<Output = T>) -> Result<T, Panic> {
    let mut work = pin!(work);
    std::future::poll_fn(|context| match catch(|| work.as_mut().poll(context)) {
        Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
        Ok(Poll::Pending) => Poll::Pending,
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}

/// Function that reports a panic. Its arguments are the panic and a description of the lost work.
type Report = dyn Fn(&Panic, &str);

/// Starter of tasks in the event loop of one thread. It also reports panics in these tasks.
#[derive(Clone)]
pub(crate) struct Tasks {
    report: Rc<Report>,
}

impl Tasks {
    /// Returns a task starter that calls `report` with each panic and a description of the lost
    /// work.
    pub(crate) fn new(report: impl Fn(&Panic, &str) + 'static) -> Tasks {
        Tasks { report: Rc::new(report) }
    }

    /// Reports a panic with a description of the lost work.
    pub(crate) fn report(&self, panic: &Panic, cost: &str) {
        (self.report)(panic, cost);
    }

    /// Starts a task. If the task panics, the function `cost` returns a description of the lost work.
    pub(crate) fn spawn(
        &self,
        cost: impl FnOnce() -> String + 'static,
        task: impl Future<Output = ()> + 'static,
    ) {
        let tasks = self.clone();
        spawn_local(async move {
            if let Err(panic) = catch_async(task).await {
                tasks.report(&panic, &cost());
            }
        });
    }

    /// Starts a task that must always run. After each panic, `begin` starts the task again. `cost`
    /// describes the work lost by a panic.
    pub(crate) fn keep<F>(&self, cost: &'static str, mut begin: impl FnMut() -> F + 'static)
    where
        F: Future<Output = ()> + 'static,
    {
        let tasks = self.clone();
        spawn_local(async move {
            while let Err(panic) = catch_async(begin()).await {
                tasks.report(&panic, cost);
            }
        });
    }
}

/// Number of panics that a thread may have: ten in a burst, then one per minute (a generic cell
/// rate algorithm, ITU-T I.371).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Allowance {
    whole_at: Nanos,
}

impl Allowance {
    /// Records a panic. Returns false if the thread has had too many panics.
    pub(crate) fn take(&mut self, now: Nanos) -> bool {
        self.whole_at = self.whole_at.max(now) + EACH;
        self.whole_at <= now + Nanos(AT_ONCE * EACH.0)
    }
}

/// Panics if the query name begins with `place`. A test can thereby cause a panic at a chosen place
/// in the code.
#[cfg(test)]
pub(crate) fn panic_if_named(place: &str, name: &[u8]) {
    assert!(name.get(1..=place.len()) != Some(place.as_bytes()), "a defect in {place}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_caught_with_the_beginning_of_its_message() {
        assert_eq!(catch(|| 7), Ok(7));
        let panic = catch(|| panic!("{}", "ö".repeat(500))).unwrap_err();
        assert_eq!(panic.to_string(), "ö".repeat(LONGEST / 2));
        assert!(catch(|| std::panic::panic_any(7)).unwrap_err().to_string() == "a panic");
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            assert_eq!(catch_async(async { tokio::task::yield_now().await }).await, Ok(()));
            assert!(catch_async(async { panic!("later") }).await.is_err());
        });
    }

    #[test]
    fn panics_of_tasks_are_reported_and_kept_ones_restart() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let reported = Rc::new(RefCell::new(Vec::new()));
        let tasks = Tasks::new({
            let reported = Rc::clone(&reported);
            move |panic, cost| reported.borrow_mut().push(format!("{cost}: {panic}"))
        });
        tokio::task::LocalSet::new().block_on(&runtime, async {
            tasks.spawn(|| "a connection".into(), async { panic!("once") });
            tasks.spawn(|| "nothing".into(), async {});
            let mut left = 3;
            tasks.keep("a listener", move || {
                left -= 1;
                async move { assert!(left == 0, "{left} left") }
            });
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
        });
        assert_eq!(
            *reported.borrow(),
            ["a connection: once", "a listener: 2 left", "a listener: 1 left"]
        );
    }

    #[test]
    fn repeated_panics_exceed_the_allowance() {
        let mut allowance = Allowance::default();
        let now = Nanos::SECOND;
        assert!((0..AT_ONCE).all(|_| allowance.take(now)));
        assert!(!allowance.take(now) && !allowance.take(now + Nanos::SECOND));
        let mut allowance = Allowance::default();
        assert!((0..1_000).all(|n| allowance.take(Nanos(n * EACH.0))), "one a minute is allowed");
    }
}
