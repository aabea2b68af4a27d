//! How often memory moves, and how much is held back while the machine is short of it.

use super::Settings;

/// How long pressure must be gone until memory is granted again, in milliseconds.
const CALM_MS: u64 = 60_000;

/// How often more is held back while pressure lasts, in milliseconds: the kernel's average is over ten
/// seconds.
const STEP_MS: u64 = 5_000;

/// What is held back in a step, as a divisor of the budget, and the most steps.
const STEP_SHARE: u64 = 32;
const STEPS_MAX: u64 = 8;

/// When moves were made, and how much is held back.
#[derive(Default)]
pub(super) struct Pace {
    moved_at: Option<u64>,
    /// Held back beside the reserve, in steps.
    steps: u64,
    stepped_at: u64,
    pressed_at: Option<u64>,
}

impl Pace {
    /// Whether a move that nothing urges may begin.
    pub(super) fn may_move(&self, now: u64, settings: &Settings) -> bool {
        let since = self.moved_at.map(|at| now.saturating_sub(at));
        since.is_none_or(|since| since >= settings.dwell_ms)
    }

    pub(super) fn moved(&mut self, now: u64) {
        self.moved_at = Some(now);
    }

    /// Takes the machine's pressure into account.
    pub(super) fn feel(&mut self, percent: f64, now: u64, settings: &Settings) {
        if percent >= settings.pressure_percent {
            self.pressed_at = Some(now);
            let is_due = self.steps == 0 || now.saturating_sub(self.stepped_at) >= STEP_MS;
            if is_due && self.steps < STEPS_MAX {
                self.steps += 1;
                self.stepped_at = now;
            }
            return;
        }
        let calm = self.pressed_at.map(|at| now.saturating_sub(at));
        let is_due = now.saturating_sub(self.stepped_at) >= STEP_MS;
        if self.steps > 0 && is_due && calm.is_none_or(|calm| calm >= CALM_MS) {
            self.steps -= 1;
            self.stepped_at = now;
        }
    }

    /// Bytes that are to be free beside the reserve.
    pub(super) fn held_back(&self, settings: &Settings) -> u64 {
        settings.budget / STEP_SHARE * self.steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_holds_back_in_steps_and_lets_go_slowly() {
        let settings = Settings::of_budget(3_200);
        let mut pace = Pace::default();
        pace.feel(5.0, 0, &settings);
        assert_eq!(pace.held_back(&settings), 0);
        for now in (1_000..7_000).step_by(250) {
            pace.feel(20.0, now, &settings);
        }
        assert_eq!(pace.held_back(&settings), 200);
        for now in (7_000..200_000).step_by(250) {
            pace.feel(20.0, now, &settings);
        }
        assert_eq!(pace.held_back(&settings), 800);
        for now in (200_000..259_000).step_by(250) {
            pace.feel(0.0, now, &settings);
        }
        assert_eq!(pace.held_back(&settings), 800);
        for now in (259_000..400_000).step_by(250) {
            pace.feel(0.0, now, &settings);
        }
        assert_eq!(pace.held_back(&settings), 0);
    }

    #[test]
    fn moves_keep_their_distance() {
        let settings = Settings::of_budget(1);
        let mut pace = Pace::default();
        assert!(pace.may_move(0, &settings));
        pace.moved(10);
        assert!(!pace.may_move(30_009, &settings));
        assert!(pace.may_move(30_010, &settings));
    }
}
