//! What threads of the process do for a copy: all that is told, ticks, and whatever takes long.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use aerostat_types::{Clock, SystemClock};

use crate::{
    inbox::Told,
    pool::{Next, Work},
    turn::{Core, LARGE_BYTES, Turn, TurnHost},
};

/// So long a thread does what one copy has to do while others may wait for it: some hundred messages, or a part of the log.
const SLICE: Duration = Duration::from_millis(2);

/// What is told to a copy, and has not been done yet. Packets have places, which bound them; of the rest there is little.
pub(crate) struct Queue(Mutex<Option<VecDeque<Told>>>);

/// Room that a queue keeps when it is empty.
const KEPT_MAX: usize = 32;

impl Queue {
    pub(crate) fn new() -> Queue {
        Queue(Mutex::new(Some(VecDeque::new())))
    }

    fn lock(&self) -> MutexGuard<'_, Option<VecDeque<Told>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is taken: somebody does it.
    pub(crate) fn push(&self, told: Told) -> bool {
        match &mut *self.lock() {
            Some(queue) => {
                queue.push_back(told);
                true
            }
            None => false,
        }
    }

    fn pop(&self) -> Option<Told> {
        let mut queue = self.lock();
        let queue = queue.as_mut()?;
        let told = queue.pop_front();
        if queue.is_empty() && queue.capacity() > KEPT_MAX {
            *queue = VecDeque::new();
        }
        told
    }

    fn is_empty(&self) -> bool {
        self.lock().as_ref().is_none_or(VecDeque::is_empty)
    }

    /// Takes nothing any more.
    fn close(&self) {
        let left = self.lock().take();
        drop(left);
    }
}

/// What threads do for a copy.
pub(crate) struct Driving<H> {
    pub(crate) turn: Arc<Turn<H>>,
    pub(crate) queue: Arc<Queue>,
}

impl<H: TurnHost> Driving<H> {
    /// One thing that was told, or what is due. Whether there is more to do at once.
    fn step(&self) -> Next {
        let told = self.queue.pop();
        let mut guard = self.turn.lock();
        let (false, Some(core)) = (matches!(told, Some(Told::Stop)), guard.as_mut()) else {
            let ended = self.turn.take(&mut guard);
            drop(guard);
            self.queue.close();
            drop(ended);
            return Next::Over;
        };
        match told {
            Some(told) => do_told(&self.turn, core, told),
            None if core.driver.has_more() => {
                core.step(|driver, now, host| driver.written(now, host));
            }
            None => {}
        }
        core.tick();
        self.turn.look_at(core, true);
        if core.failed.is_some()
            && let Some(Core {
                driver,
                mut host,
                failed: Some(error),
                ..
            }) = self.turn.take(&mut guard)
        {
            drop(guard);
            // Committers are told before anybody opens it again.
            drop(driver);
            host.ended(error);
            self.queue.close();
            return Next::Over;
        }
        let has_more = guard.as_ref().is_some_and(|core| core.driver.has_more());
        // Whoever leaves word from here on finds that it is nobody's turn.
        drop(guard);
        match has_more || self.turn.has_word() || !self.queue.is_empty() {
            true => Next::Again,
            false => Next::Rest,
        }
    }
}

impl<H: TurnHost> Work for Driving<H> {
    fn run(&self) -> Next {
        let began = SystemClock.now();
        loop {
            let next = self.step();
            if next != Next::Again || began.elapsed() >= SLICE {
                return next;
            }
        }
    }

    fn due(&self) -> Option<Instant> {
        self.turn.due()
    }
}

fn do_told<H: TurnHost>(turn: &Turn<H>, core: &mut Core<H>, told: Told) {
    match told {
        Told::Packet(packet, _place) => {
            let bytes = packet.records.bytes.len();
            if bytes > LARGE_BYTES {
                core.driver.wait_if_behind(bytes);
            }
            core.receive(packet);
            turn.packet_done();
        }
        Told::Written => core.step(|driver, now, host| driver.written(now, host)),
        Told::Config(config) => core.step(|driver, now, host| driver.config(now, config, host)),
        Told::Swapped(config) => core.step(|driver, now, host| driver.swapped(now, config, host)),
        Told::Lead => core.step(|driver, _, host| {
            driver.ask_to_lead(host);
            Ok(())
        }),
        Told::HandOver(to) => core.step(|driver, now, host| driver.hand_over(now, to, host)),
        Told::Quiet(quiet) => core.step(|driver, now, host| driver.quiet(now, quiet, host)),
        Told::AndSync(and_sync) => {
            core.step(|driver, now, host| driver.and_sync(now, and_sync, host));
        }
        Told::Wanted(nodes) => core.step(|driver, now, host| driver.wanted(now, nodes, host)),
        // It has ended by then.
        Told::Stop => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn what_is_told_is_done_in_its_order_and_nothing_once_it_is_closed() {
        let queue = Arc::new(Queue::new());
        let more = Arc::clone(&queue);
        let teller = std::thread::spawn(move || {
            (0..1_000).for_each(|n| assert!(more.push(Told::Quiet(n % 3 == 0))));
        });
        let mut found = Vec::new();
        while found.len() < 1_000 {
            if let Some(Told::Quiet(quiet)) = queue.pop() {
                found.push(quiet);
            }
        }
        teller.join().unwrap();
        let expected: Vec<bool> = (0..1_000).map(|n| n % 3 == 0).collect();
        assert!(found == expected && queue.is_empty());
        assert!(queue.push(Told::Written));
        queue.close();
        assert!(!queue.push(Told::Written) && queue.pop().is_none());
    }
}
