//! What the kernel says beside a packet, and its clock beside ours.

/// Memory for what the kernel says beside one packet: a stamp of three times, and the length of the pieces.
pub(super) const CONTROL_BYTES: usize = 128;

/// A change between the kernel's two clocks that is a step: above what reading them together leaves in doubt.  Slewing
/// bends both alike.
const STEP_NS: i64 = 50_000;

/// What the kernel says beside a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Beside {
    /// When it came, by `CLOCK_REALTIME`; `None` without a stamp.
    pub realtime_ns: Option<i64>,
    /// Length of each of the packets that come in one piece; `None` for a single one.
    pub piece_bytes: Option<usize>,
}

impl Beside {
    /// Reads it.
    ///
    /// # Safety
    /// The message's control memory and length must be as the kernel left them.
    pub(super) unsafe fn of(message: &libc::msghdr) -> Self {
        let mut beside = Self::default();
        // SAFETY: the caller's promise; the macros stay within the control memory, and what lies there may be unaligned.
        unsafe {
            let mut at = libc::CMSG_FIRSTHDR(message);
            while !at.is_null() {
                let header = at.read_unaligned();
                let data = libc::CMSG_DATA(at);
                match (header.cmsg_level, header.cmsg_type) {
                    (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) => {
                        // The first of three is the software's.
                        let time = data.cast::<libc::timespec>().read_unaligned();
                        let ns = time.tv_sec * 1_000_000_000 + time.tv_nsec;
                        beside.realtime_ns = (ns != 0).then_some(ns);
                    }
                    (libc::SOL_UDP, libc::UDP_GRO) => {
                        beside.piece_bytes = usize::try_from(data.cast::<i32>().read_unaligned()).ok();
                    }
                    _ => {}
                }
                at = libc::CMSG_NXTHDR(message, at);
            }
        }
        beside
    }
}

/// How far the real-time clock was stepped between two readings of its lead; 0 if it was not.
pub(super) fn step_ns(before_ns: i64, after_ns: i64) -> i64 {
    let change = after_ns - before_ns;
    if change.abs() > STEP_NS { change } else { 0 }
}

#[cfg(test)]
mod tests {
    use packets::clocks::realtime_lead_ns;

    use super::*;

    #[test]
    fn a_step_is_told_from_what_reading_two_clocks_leaves_in_doubt() {
        assert_eq!(step_ns(1_000, 41_000), 0);
        assert_eq!(step_ns(0, -3_600_000_000_000), -3_600_000_000_000);
        assert_eq!(step_ns(5, 1_000_005), 1_000_000);
    }

    #[test]
    fn the_lead_stays_while_nobody_steps_the_clock() {
        assert_eq!(step_ns(realtime_lead_ns(), realtime_lead_ns()), 0);
    }
}
