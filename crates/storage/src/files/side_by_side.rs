//! Work on independent items, such as tables during recovery, on all processors.

use parking_lot::Mutex;

/// Does something to each item, on so many threads at most: on the caller's alone in the order of
/// the items. Gives the first error.
pub(crate) fn side_by_side<T: Send, E: Send>(
    threads: usize,
    items: Vec<T>,
    run: impl Fn(T) -> Result<(), E> + Sync,
) -> Result<(), E> {
    if items.len() <= 1 || threads <= 1 {
        return items.into_iter().try_for_each(run);
    }
    let threads = threads.min(items.len());
    let items = Mutex::new(items.into_iter());
    let work = || loop {
        let Some(item) = items.lock().next() else {
            return Ok(());
        };
        run(item)?;
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut result = work();
        for other in others {
            let ended = other.join();
            result = result.and(ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        result
    })
}
