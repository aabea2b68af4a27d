//! The caller's thread waits for the engine.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use tokio::{runtime::Handle, task::unconstrained};

/// Wakes the thread that waits.
struct Sleeper {
    thread: Thread,
    /// Whether it was to be woken: the thread's own token may be taken by whoever else parks it.
    is_woken: AtomicBool,
}

impl Sleeper {
    fn sleep(&self) {
        while !self.is_woken.swap(false, Ordering::Acquire) {
            thread::park();
        }
    }
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Runs a future to its end on this thread, with the runtime's timers. `Handle::block_on` does
/// the same with some bookkeeping more, and panics on a thread that runs tasks. On such a
/// thread the future takes nothing of what the task may do before it must give way: it cannot.
pub(crate) fn block_on<F: Future>(runtime: &Handle, future: F) -> F::Output {
    let _timers = runtime.enter();
    let sleeper = Arc::new(Sleeper {
        thread: thread::current(),
        is_woken: AtomicBool::new(false),
    });
    let waker = Waker::from(Arc::clone(&sleeper));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(unconstrained(future));
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => sleeper.sleep(),
        }
    }
}
