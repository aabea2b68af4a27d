//! The caller's thread waits for the engine.

use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use tokio::runtime::Handle;

/// Wakes the thread that waits.
struct Sleeper(Thread);

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end on this thread, with the runtime's timers. `Handle::block_on` does
/// the same with some bookkeeping more, and panics on a thread that runs tasks.
pub(crate) fn block_on<F: Future>(runtime: &Handle, future: F) -> F::Output {
    let _timers = runtime.enter();
    let waker = Waker::from(Arc::new(Sleeper(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            // Whoever wakes it for another reason costs one look at the future.
            Poll::Pending => thread::park(),
        }
    }
}
