//! A task of a statement: a future that is polled when its turn has come.

use std::{
    cell::RefCell,
    future::{self, Future},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
};

use aerostat_sync::{Mutex, thread_local};

use crate::{
    Scheduler, TURN, TURN_ALONE, Work,
    queue::{Order, QueuePosition},
};

/// What a task is doing. Changes under the scheduler's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nobody has woken it since it was polled.
    Asleep,
    /// In the queue.
    Waiting(QueuePosition),
    /// It has a thread as soon as the executor polls it.
    Called(Order),
    Polled {
        order: Order,
        is_woken: bool,
    },
    /// Ended or dropped.
    Gone,
}

/// A task as its wakers and the queue have it.
pub(crate) struct Task {
    work: Arc<Work>,
    stage: Mutex<Stage>,
    /// Of the executor's task.
    executor: Mutex<Option<Waker>>,
}

impl Task {
    /// It is out of the queue, and next.
    pub(crate) fn call(&self, order: Order) {
        *self.stage.lock() = Stage::Called(order);
    }

    pub(crate) fn wake_executor(&self) {
        let waker = self.executor.lock().clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn scheduler(&self) -> &Arc<Scheduler> {
        &self.work.share.scheduler
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.scheduler().change(|state| {
            let mut stage = self.stage.lock();
            match *stage {
                Stage::Asleep => {
                    let (share, rank) = (self.work.share.no, self.work.rank());
                    *stage = Stage::Waiting(state.queue.push(share, rank, Arc::clone(self)));
                }
                Stage::Polled {
                    ref mut is_woken, ..
                } => *is_woken = true,
                Stage::Waiting(_) | Stage::Called(_) | Stage::Gone => {}
            }
        });
    }
}

/// A future of a statement that is polled when it is its turn.
pub struct Scheduled<F> {
    future: Pin<Box<F>>,
    task: Arc<Task>,
    /// The task's.
    waker: Waker,
}

impl<F> Scheduled<F> {
    /// Part of a statement's work, which an executor gets a task for now, and for it alone.
    pub fn new(work: Arc<Work>, future: F) -> Self {
        let task = Arc::new(Task {
            work,
            stage: Mutex::new(Stage::Asleep),
            executor: Mutex::new(None),
        });
        // Whoever has a thread now is told at once that somebody waits, not when the executor
        // comes to poll this for the first time.
        task.wake_by_ref();
        Self {
            future: Box::pin(future),
            waker: Waker::from(Arc::clone(&task)),
            task,
        }
    }
}

impl<F: Future> Future for Scheduled<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        {
            let mut executor = this.task.executor.lock();
            if !executor
                .as_ref()
                .is_some_and(|own| own.will_wake(context.waker()))
            {
                *executor = Some(context.waker().clone());
            }
        }
        if !begins(&this.task) {
            return Poll::Pending;
        }
        let _turn = Turn::new(&this.task);
        this.future
            .as_mut()
            .poll(&mut Context::from_waker(&this.waker))
    }
}

impl<F> Drop for Scheduled<F> {
    fn drop(&mut self) {
        let task = &self.task;
        let scheduler = task.scheduler();
        scheduler.change(|state| {
            let stage = std::mem::replace(&mut *task.stage.lock(), Stage::Gone);
            match stage {
                Stage::Waiting(place) => state.queue.remove(task.work.share.no, place),
                Stage::Called(_) => state.running -= 1,
                Stage::Asleep | Stage::Polled { .. } | Stage::Gone => {}
            }
        });
        // What still has a waker of it keeps nothing of the executor's.
        drop(task.executor.lock().take());
    }
}

/// Whether a task that the executor polls has its turn; else it waits, or nobody has woken it.
fn begins(task: &Task) -> bool {
    let _state = task.scheduler().state.lock();
    let mut stage = task.stage.lock();
    let Stage::Called(order) = *stage else {
        return false;
    };
    *stage = Stage::Polled {
        order,
        is_woken: false,
    };
    true
}

/// What this thread polls.
struct Current {
    task: Arc<Task>,
    /// When it began.
    since: u64,
    /// Whether another has its place meanwhile ([`asleep`]).
    is_asleep: bool,
}

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

/// Looks at what this thread polls, if it polls a task.
fn with_current<T>(look: impl FnOnce(&Current) -> Option<T>) -> Option<T> {
    CURRENT.with(|current| look(current.borrow().as_ref()?))
}

/// A poll of a task, until it is dropped.
struct Turn {
    /// Of a task within whose poll this one is.
    before: Option<Current>,
}

impl Turn {
    fn new(task: &Arc<Task>) -> Self {
        let current = Current {
            since: task.scheduler().now(),
            task: Arc::clone(task),
            is_asleep: false,
        };
        Self {
            before: CURRENT.with(|own| own.replace(Some(current))),
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(Current { task, since, .. }) = CURRENT.with(|own| own.replace(self.before.take()))
        else {
            return;
        };
        let (scheduler, work) = (task.scheduler(), &task.work);
        let taken = scheduler.now().saturating_sub(since);
        scheduler.change(|state| {
            let mut stage = task.stage.lock();
            let (order, is_woken) = match *stage {
                Stage::Polled { order, is_woken } => (order, is_woken),
                _ => (Order::First, false),
            };
            work.charge(state, taken, order);
            state.running -= 1;
            *stage = match is_woken {
                true => {
                    let place = state
                        .queue
                        .push(work.share.no, work.rank(), Arc::clone(&task));
                    Stage::Waiting(place)
                }
                false => Stage::Asleep,
            };
        });
    }
}

/// The statement whose task this thread polls.
pub fn current() -> Option<Arc<Work>> {
    with_current(|current| Some(Arc::clone(&current.task.work)))
}

/// Whether the task that this thread polls has worked long enough: others wait, or somebody may
/// have given it up. `None` outside of tasks.
pub fn turn_is_over() -> Option<bool> {
    with_current(|Current { task, since, .. }| {
        let scheduler = task.scheduler();
        let worked = u128::from(scheduler.now().saturating_sub(*since));
        let is_waited_for = scheduler.waiting() > 0;
        Some(worked >= TURN.as_nanos() && is_waited_for || worked >= TURN_ALONE.as_nanos())
    })
}

/// Ends the turn: the task goes on when it is its turn again.
pub async fn give_way() {
    let mut has_given_way = false;
    future::poll_fn(|context| {
        if has_given_way {
            return Poll::Ready(());
        }
        has_given_way = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Runs what sleeps. Its task keeps its thread, but another task has its place meanwhile, and the
/// time is not its own. What sleeps within has given its place already.
pub fn asleep<T>(sleep: impl FnOnce() -> T) -> T {
    /// Takes the place back, for it goes on by itself.
    struct Awake {
        task: Arc<Task>,
        since: u64,
    }

    impl Drop for Awake {
        fn drop(&mut self) {
            let scheduler = self.task.scheduler();
            scheduler.state.lock().running += 1;
            let slept = scheduler.now().saturating_sub(self.since);
            CURRENT.with(|current| {
                if let Some(current) = &mut *current.borrow_mut() {
                    current.since += slept;
                    current.is_asleep = false;
                }
            });
        }
    }

    let task = CURRENT.with(|current| {
        let mut current = current.borrow_mut();
        let current = current.as_mut().filter(|current| !current.is_asleep)?;
        current.is_asleep = true;
        Some(Arc::clone(&current.task))
    });
    let _awake = task.map(|task| {
        let scheduler = task.scheduler();
        scheduler.change(|state| state.running -= 1);
        let since = scheduler.now();
        Awake { task, since }
    });
    sleep()
}
