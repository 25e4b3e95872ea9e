//! What a world may have besides the trouble that it is about. Drawn apart from the rest, so that a seed that once failed stays the world
//! that it was: see [`World::plain`](crate::World::plain).

use fastrand::Rng;

use crate::theme::Theme;

/// How far a machine's clock may run fast or slow, in millionths: two of them are then no further apart than the protocol allows, which is
/// one in a thousand.
pub(crate) const DRIFT_PPM_MAX: i32 = 500;

/// What a world has besides.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Extras {
    /// Whether the clocks of machines run fast or slow.
    pub drift: bool,
    /// Whether the store tells nobody of changes, so that instances have to look.
    pub silent_store: bool,
    /// So many calls in a thousand go back, or forward to what was not handled yet.
    pub seeks: u16,
    /// Whether the hub's log acknowledges what the system has, rather than what is durable. Such a hub promises nothing about a power cut,
    /// so its process is killed where another one's power is cut.
    pub relaxed: bool,
}

impl Extras {
    /// Draws what a world of this kind has besides.
    pub fn draw(theme: Theme, rng: &mut Rng) -> Self {
        // All are drawn, so that one more does not change the others.
        let [drift, silent_store, seeks, relaxed] = [rng.u8(..2), rng.u8(..4), rng.u8(..4), rng.u8(..3)];
        let per_mille = rng.u16(2..30);
        Self {
            drift: drift == 0,
            silent_store: silent_store == 0,
            // Who goes back handles events again, and here none is to be.
            seeks: if seeks == 0 && theme != Theme::Planned { per_mille } else { 0 },
            relaxed: relaxed == 0 && theme == Theme::Log,
        }
    }
}
