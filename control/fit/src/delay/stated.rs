// SPDX-License-Identifier: Apache-2.0
//! The law of the round trips that a profile states.

use proto::linkemu::v1 as pb;

use super::law::{Body, Excursions, Law, Regime};
use crate::seconds;

/// The law of the round trips of a profile's pings; `None` if both directions vary all the
/// time, or something but the delay makes them vary.
#[must_use]
pub fn law(profile: &pb::Profile) -> Option<Law> {
    let pipes = [profile.forward_pipe.as_ref()?, profile.return_pipe.as_ref()?];
    let mut law = Law { base: 0.0, body: Body::constant(), excursions: Vec::new() };
    for pipe in pipes {
        let trace = pipe.rate_trace.is_some() || pipe.path_trace.is_some();
        if trace || pipe.reorder.is_some() || pipe.reconfiguration.is_some() {
            return None;
        }
        let Some(delay) = &pipe.delay else { continue };
        law.base += seconds(delay.base_ns);
        // A ping waits for its constant burst as for a slot.
        let superframe = match &pipe.access {
            Some(access) if access.constant == 0 => return None,
            Some(access) => access.superframe_ns,
            None => 0,
        };
        let body = match (&delay.body, delay.slot_ns.max(superframe)) {
            (None, 0) => None,
            (None, slot) => Some(Body::Slot { period: seconds(slot), regular: true }),
            (Some(body), 0) => Some(Body::Held {
                quantiles: body.quantiles_ns.iter().map(|ns| seconds(*ns)).collect(),
                correlation: seconds(body.correlation_ns),
            }),
            (Some(_), _) => return None,
        };
        if let Some(body) = body {
            if law.body != Body::constant() {
                return None;
            }
            law.body = body;
        }
        law.excursions.extend(delay.excursions.iter().map(excursions));
    }
    Some(law)
}

fn excursions(e: &pb::Excursion) -> Excursions {
    Excursions {
        interval: seconds(e.interval_ns),
        duration: seconds(e.duration_ns),
        location: seconds(e.location_ns),
        scale: seconds(e.scale_ns).max(1e-9),
        shape: e.shape,
        max: seconds(e.max_ns),
        regime: e.regime.as_ref().map(|r| Regime {
            interval: seconds(r.interval_ns),
            duration: seconds(r.duration_ns),
            factor: r.factor,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> pb::Profile {
        let delay = pb::Delay { base_ns: 1_000_000, ..Default::default() };
        let pipe = pb::Pipe { delay: Some(delay), ..Default::default() };
        pb::Profile {
            forward_pipe: Some(pipe.clone()),
            return_pipe: Some(pipe),
            ..Default::default()
        }
    }

    #[test]
    fn delay_that_follows_a_trace_has_no_stated_law() {
        assert_eq!(law(&profile()).unwrap().base, 0.002);
        let mut traced = profile();
        traced.return_pipe.as_mut().unwrap().path_trace = Some(pb::PathTrace::default());
        assert!(law(&traced).is_none());
    }
}
