// SPDX-License-Identifier: Apache-2.0
//! Times of the packets of a capture. Delays are differences of them, so that they must not go back.

/// Largest step back that is accepted, in ns: a network card with several queues hands over packets
/// of each in turn.
const REORDERED_NS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// The times of the packets so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct PacketTimes {
    packets: u64,
    /// The packet with the latest time, from 1, and that time in ns.
    latest: (u64, u64),
}

/// A packet is of an earlier time than one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "packet {packet} has the time {} s, which is {} s before that of packet {before}, {} s: if the \
     packets are only out of order, sort them (reordercap IN OUT); if the clock was set, use the part \
     before or after that (editcap)",
    seconds(*time_ns), seconds(before_ns.abs_diff(*time_ns)), seconds(*before_ns)
)]
pub struct BackInTime {
    /// From 1, as in Wireshark.
    pub packet: u64,
    pub time_ns: u64,
    /// The packet with the latest time.
    pub before: u64,
    pub before_ns: u64,
}

fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / S, ns % S)
}

impl PacketTimes {
    /// Checks the time of the next packet, in ns.
    ///
    /// # Errors
    /// If it is more than a millisecond before the latest one.
    pub fn check(&mut self, time_ns: u64) -> Result<(), BackInTime> {
        self.packets += 1;
        let (packet, (before, before_ns)) = (self.packets, self.latest);
        if time_ns >= before_ns {
            self.latest = (packet, time_ns);
        } else if before_ns - time_ns > REORDERED_NS {
            return Err(BackInTime { packet, time_ns, before, before_ns });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_back_of_more_than_a_millisecond_is_an_error_with_both_packets() {
        let mut times = PacketTimes::default();
        for time in [0, 5 * S, 5 * S - REORDERED_NS, 5 * S + 7, 5 * S - REORDERED_NS + 7] {
            times.check(time).unwrap();
        }
        let said = times.check(4 * S).unwrap_err().to_string();
        let expected = "packet 6 has the time 4.000000000 s, which is 1.000000007 s before that of \
                        packet 4, 5.000000007 s";
        assert!(said.starts_with(expected), "{said}");
    }
}
