// SPDX-License-Identifier: Apache-2.0
//! What to probe, how often and for how long.

use crate::packet::{HEADER, LARGEST};
use profile::format_duration;
use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

/// The reflector's port.
pub const PORT: u16 = 8620;

/// Below this the sender itself is what is measured.
const INTERVAL: (Duration, Duration) = (Duration::from_micros(10), Duration::from_secs(3_600));
const TIMEOUT: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(3_600));
/// So many probes may be under way: about 200 MB, and enough for 10 s at the shortest interval.
const OUTSTANDING: usize = 2_500_000;

/// How probes are spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// At equal intervals.
    Constant,
    /// At exponential intervals.
    Poisson {
        /// Gives the same instants again; drawn if there is none.
        seed: Option<u64>,
    },
}

impl Spacing {
    /// Its name in a log.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Constant => "constant",
            Self::Poisson { .. } => "poisson",
        }
    }
}

/// How long to probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Until told to stop.
    Open,
    /// So many probes, of all the log.
    Count(u64),
    /// So long, from the log's start.
    Duration(Duration),
}

/// What a run of the sender is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Where the reflector is.
    pub target: Target,
    /// Send from this address.
    pub source: Option<IpAddr>,
    /// Time between probes, or its mean.
    pub interval: Duration,
    /// How they are spaced.
    pub spacing: Spacing,
    /// Bytes of UDP payload.
    pub size: usize,
    /// A probe whose reply takes longer is lost.
    pub timeout: Duration,
    /// How long to probe.
    pub extent: Extent,
    /// Both hosts' clocks are synchronised, so that one-way delays mean something.
    pub synchronised: bool,
}

/// A plan that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Too short or too long a time.
    #[error("--{option} {}: give {} to {}", shown(*value), shown(*least), shown(*most))]
    Time {
        /// Of what.
        option: &'static str,
        /// What was given.
        value: Duration,
        /// The shortest.
        least: Duration,
        /// The longest.
        most: Duration,
    },
    /// A size that no probe has.
    #[error(
        "--size {0}: give {HEADER} (a probe's header) to {LARGEST} (what fits into an IPv4 packet of 1500 bytes)"
    )]
    Size(usize),
    /// Nothing to do.
    #[error("--{0} 0: that is no probe; give more, or leave it out to probe until interrupted")]
    Nothing(&'static str),
    /// More probes under way than memory is meant for.
    #[error("--timeout {} at --interval {} can leave {outstanding} probes under way, more than {OUTSTANDING}: give a shorter --timeout, or a longer --interval", shown(*timeout), shown(*interval))]
    Outstanding {
        /// The timeout.
        timeout: Duration,
        /// The interval.
        interval: Duration,
        /// How many.
        outstanding: usize,
    },
    /// No place to send to.
    #[error("{text:?} is no target: {why}; write HOST, HOST:PORT or [IPv6]:PORT")]
    Target {
        /// What was given.
        text: String,
        /// What is wrong.
        why: &'static str,
    },
}

/// A duration for people; more than 584 years are as good as that.
pub(crate) fn shown(duration: Duration) -> String {
    format_duration(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

impl Plan {
    /// The default in everything but the target: 5 probes of 20 bytes a second, for as
    /// long as nobody stops it.
    #[must_use]
    pub const fn new(target: Target) -> Self {
        Self {
            target,
            source: None,
            interval: Duration::from_millis(200),
            spacing: Spacing::Constant,
            size: HEADER,
            timeout: Duration::from_secs(10),
            extent: Extent::Open,
            synchronised: false,
        }
    }

    /// Whether it can be.
    ///
    /// # Errors
    /// The first thing that cannot.
    pub fn check(&self) -> Result<(), PlanError> {
        let times = [("interval", self.interval, INTERVAL), ("timeout", self.timeout, TIMEOUT)];
        for (option, value, (least, most)) in times {
            if !(least..=most).contains(&value) {
                return Err(PlanError::Time { option, value, least, most });
            }
        }
        if !(HEADER..=LARGEST).contains(&self.size) {
            return Err(PlanError::Size(self.size));
        }
        match self.extent {
            Extent::Count(0) => return Err(PlanError::Nothing("count")),
            Extent::Duration(Duration::ZERO) => return Err(PlanError::Nothing("duration")),
            _ => {}
        }
        let (timeout, interval) = (self.timeout, self.interval);
        match self.outstanding_limit() {
            outstanding if outstanding > OUTSTANDING => {
                Err(PlanError::Outstanding { timeout, interval, outstanding })
            }
            _ => Ok(()),
        }
    }

    /// So many probes may be under way. At constant spacing timeout / interval are;
    /// Poisson probes come in clusters, so there is room for as many again and for 64
    /// more, which is 16 deviations above the mean or more.
    #[must_use]
    pub fn outstanding_limit(&self) -> usize {
        let mean = self.timeout.as_nanos() / self.interval.as_nanos().max(1);
        usize::try_from(2 * mean + 64).unwrap_or(usize::MAX)
    }
}

/// A reflector: a host and its port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    host: String,
    port: u16,
}

impl Target {
    /// Its first address of the same family as the source's.
    ///
    /// # Errors
    /// If the name does not resolve, or to no such address.
    pub fn resolve(&self, source: Option<IpAddr>) -> Result<SocketAddr, crate::Error> {
        let failed = |why: String| crate::Error::Resolve { host: self.host.clone(), why };
        let addresses = (self.host.as_str(), self.port)
            .to_socket_addrs()
            .map_err(|error| failed(error.to_string()))?;
        let fits = |address: &SocketAddr| source.is_none_or(|s| s.is_ipv4() == address.is_ipv4());
        addresses.into_iter().find(fits).ok_or_else(|| match source {
            Some(source) => failed(format!("it has no address of the family of --bind {source}")),
            None => failed("it has no address".into()),
        })
    }
}

impl From<SocketAddr> for Target {
    fn from(address: SocketAddr) -> Self {
        Self { host: address.ip().to_string(), port: address.port() }
    }
}

impl FromStr for Target {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let wrong = |why| PlanError::Target { text: text.into(), why };
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => match rest.split_once(']') {
                Some((host, "")) => (host, None),
                Some((host, port)) => match port.strip_prefix(':') {
                    Some(port) => (host, Some(port)),
                    None => return Err(wrong("after ']' comes a port")),
                },
                None => return Err(wrong("']' is missing")),
            },
            // More than one colon: an IPv6 address without brackets.
            None => match text.split_once(':') {
                Some((host, port)) if !port.contains(':') => (host, Some(port)),
                _ => (text, None),
            },
        };
        let port = match port.map(str::parse) {
            None => PORT,
            Some(Ok(0) | Err(_)) => return Err(wrong("a port is a number from 1 to 65535")),
            Some(Ok(port)) => port,
        };
        if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(wrong("a host has a name or an address"));
        }
        Ok(Self { host: host.into(), port })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plan() -> Plan {
        Plan::new("host".parse().unwrap())
    }

    #[test]
    fn a_target_is_a_host_and_perhaps_a_port() {
        for (text, shown) in [
            ("host", "host:8620"),
            ("host:9", "host:9"),
            ("192.0.2.1", "192.0.2.1:8620"),
            ("::1", "[::1]:8620"),
            ("[::1]", "[::1]:8620"),
            ("[fe80::1%eth0]:7", "[fe80::1%eth0]:7"),
        ] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), shown);
        }
        for text in ["", ":9", "host:", "host:0", "host:65536", "host:-1", "[::1", "[::1]9", "a b"]
        {
            let error = text.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains("write HOST"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn a_target_is_shown_as_it_is_read(text in "\\PC{0,40}") {
            if let Ok(target) = text.parse::<Target>() {
                // A bracket inside a name does not resolve; what is shown is not read again.
                prop_assume!(!text.contains(['[', ']']));
                prop_assert_eq!(target.to_string().parse(), Ok(target));
            }
        }
    }

    #[test]
    fn a_plan_that_cannot_be_is_refused_with_the_limit() {
        let (us, s) = (Duration::from_micros, Duration::from_secs);
        assert_eq!(plan().check(), Ok(()));
        assert_eq!(Plan { interval: us(10), ..plan() }.check(), Ok(()));
        for (bad, expected) in [
            (Plan { interval: us(0), ..plan() }, "--interval 0 ms: give 10 us to 1 h"),
            (Plan { interval: us(9), ..plan() }, "--interval 9 us: give 10 us"),
            (Plan { interval: Duration::MAX, ..plan() }, "give 10 us to 1 h"),
            (Plan { timeout: us(999), ..plan() }, "--timeout 999 us: give 1 ms to 1 h"),
            (Plan { size: 19, ..plan() }, "--size 19: give 20"),
            (Plan { size: 1473, ..plan() }, "1472 (what fits into"),
            (Plan { extent: Extent::Count(0), ..plan() }, "--count 0"),
            (Plan { extent: Extent::Duration(us(0)), ..plan() }, "--duration 0"),
            (Plan { interval: us(10), timeout: s(13), ..plan() }, "a shorter --timeout"),
        ] {
            let error = bad.check().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn an_address_of_the_wrong_family_is_no_answer() {
        let target: Target = "127.0.0.1:9".parse().unwrap();
        assert_eq!(target.resolve(None).unwrap(), "127.0.0.1:9".parse().unwrap());
        let error = target.resolve(Some("::1".parse().unwrap())).unwrap_err().to_string();
        assert!(error.contains("--bind ::1"), "{error}");
    }
}
