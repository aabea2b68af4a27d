//! What threads of the process do for a copy: all that is told, ticks, and whatever takes long.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use aerostat_types::{Clock, SystemClock};

use crate::{
    pool::{Next, Work},
    told::{Queue, Told},
    turn::{Core, LARGE_BYTES, Turn, TurnHost},
};

/// So long a thread does what one copy has to do while others may wait for it: some hundred messages, or a part of the log.
const SLICE: Duration = Duration::from_millis(2);

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
