//! The probe of packets refuses networks that are not the test's own, and accounts for what it sends in one that is.

mod controller;

use controller::{Controller, field, integers, ip, map, real, text, unsigned};
use rmpv::Value;

/// An agent in a network namespace of its own, with the two ends of a link in it.
fn agent_on_a_link() -> Controller {
    Controller::apart(|| {
        ip("link add name one type veth peer name other");
        ip("link set dev one up");
        ip("link set dev other up");
    })
}

fn flow(number: u8, weight: f64) -> Value {
    map(&[
        ("source_mac", "02:00:00:00:00:01".into()),
        ("destination_mac", "02:00:00:00:00:02".into()),
        ("source", "10.0.0.1".into()),
        ("destination", format!("10.1.0.{number}").into()),
        ("weight", weight.into()),
    ])
}

fn params(changes: &[(&str, Value)]) -> Value {
    let mut fields = vec![
        ("port", "af_packet".into()),
        ("transmit", "one".into()),
        ("receive", "other".into()),
        ("flows", Value::Array(vec![flow(1, 1.0), flow(2, 3.0)])),
        ("frame_bytes", 64.into()),
        ("rate_pps", 10_000.0.into()),
        ("duration_ns", 200_000_000.into()),
        ("burst", 0.into()),
        ("drain_ns", 100_000_000.into()),
        ("latency", "all".into()),
        ("tx_cpu", Value::Nil),
        ("rx_cpu", 0.into()),
        ("seed", 7.into()),
    ];
    for (name, value) in changes {
        fields.iter_mut().find(|(field, _)| field == name).unwrap().1 = value.clone();
    }
    map(&fields)
}

fn answer(controller: &mut Controller, id: u64, params: Value) -> Value {
    controller.start_probe(id, "packet_trial", params);
    controller.until_end_of(id).pop().unwrap()
}

#[test]
fn nothing_is_sent_in_the_machines_own_network() {
    let answer = answer(&mut Controller::greeted(), 1, params(&[("transmit", "lo".into()), ("receive", "lo".into())]));
    assert_eq!(text(&answer, "code"), "unsupported", "{answer}");
    assert!(text(&answer, "message").contains("network namespace"), "{answer}");
}

#[test]
fn every_frame_sent_through_a_link_is_accounted_for() {
    let mut controller = agent_on_a_link();
    for (id, port) in (1..).zip(["af_packet", "af_xdp", "xdp_live", "auto"]) {
        let result = answer(&mut controller, id, params(&[("port", port.into())]));
        assert_eq!(text(&result, "type"), "result", "{result}");
        let figure = |name: &str| unsigned(&result, &format!("value.{name}"));
        assert_eq!((figure("frames_planned"), figure("sent"), figure("received")), (2000, 2000, 2000), "{result}");
        assert_eq!(figure("lost") + figure("duplicates") + figure("reordered") + figure("corrupted"), 0, "{result}");
        assert_eq!(unsigned(&result, "value.latency.n"), 2000);
        assert_eq!(integers(&result, "value.latency.counts").iter().sum::<i64>(), 2000);
        assert_eq!(unsigned(&result, "value.gaps.n"), 1999);
        // At the rate that was really offered: a machine that does something else meanwhile stretches the trial.
        let (gap_ps, offered_pps) = (real(&result, "value.gaps.mean"), real(&result, "value.offered_pps"));
        assert!((gap_ps * 1e-12 * offered_pps - 1.0).abs() < 0.2, "{gap_ps} ps at {offered_pps} frames/s");
        assert!(offered_pps <= 10_000.0, "{offered_pps}");
        let flows = field(&result, "value.flows").as_array().unwrap();
        assert_eq!(flows.iter().map(|flow| unsigned(flow, "sent")).sum::<u64>(), 2000);
        assert!(unsigned(&flows[0], "sent").abs_diff(500) < 5);
        assert!(flows.iter().all(|flow| unsigned(flow, "sent") == unsigned(flow, "received")));
        let reasons = field(&result, "value.port_reasons").as_array().unwrap();
        if port == "auto" {
            assert_eq!(text(&result, "value.port"), "xdp_live", "{reasons:?}");
        } else {
            assert_eq!(text(&result, "value.port"), port);
        }
    }
}

#[test]
fn a_burst_keeps_to_the_rate() {
    let mut controller = agent_on_a_link();
    for (id, (port, frames)) in (1..).zip([("af_packet", 300u64), ("xdp_live", 300), ("af_packet", 1)]) {
        let result = answer(&mut controller, id, params(&[("port", port.into()), ("burst", frames.into())]));
        assert_eq!(unsigned(&result, "value.sent"), frames, "{result}");
        assert!(real(&result, "value.offered_pps") <= 10_000.0, "{result}");
    }
}

#[test]
fn what_is_not_accepted_is_named() {
    let mut controller = agent_on_a_link();
    let flows = |flows: &[Value]| Value::Array(flows.to_vec());
    let wrong: [(&str, Value, &str); 9] = [
        ("frame_bytes", 63.into(), "params.frame_bytes: 63; accepted: an integer from 64 to 1518"),
        ("port", "dpdk".into(), "params.port: \"dpdk\" is not accepted: accepted are xdp_live, af_xdp, af_packet"),
        ("rate_pps", 0.0.into(), "params.rate_pps: 0.0; accepted: a number from 1 to 100000000"),
        ("rate_pps", Value::Nil, "params.rate_pps: invalid type: unit value, expected a JSON number"),
        ("flows", flows(&[]), "params.flows: a list of 0; accepted: a list of 1 to 256"),
        ("flows", flows(&[flow(1, 0.0)]), "params.flows have no weight; accepted: at least one above 0"),
        (
            "flows",
            flows(&[flow(1, 1.0), flow(1, -1.0)]),
            "params.flows[1].weight: -1.0; accepted: a number from 0 to 1000000000000",
        ),
        ("tx_cpu", "0".into(), "params.tx_cpu: invalid type: string \"0\", expected a JSON number"),
        ("rate_pps", 1e8.into(), "params.rate_pps and params.duration_ns make"),
    ];
    for (id, (field, value, message)) in (1..).zip(wrong) {
        let (rate, duration) = (("duration_ns", 3_600_000_000_000u64.into()), (field, value));
        let answer = answer(&mut controller, id, params(&[rate, duration]));
        assert_eq!(text(&answer, "code"), "bad-request", "{answer}");
        assert!(text(&answer, "message").starts_with(message), "{answer}");
    }
    let answer = answer(&mut controller, 99, params(&[("transmit", "nowhere".into())]));
    assert_eq!(text(&answer, "code"), "unsupported");
    assert!(text(&answer, "message").contains("nowhere"), "{answer}");
}

#[test]
fn a_cancelled_trial_ends_at_once_whatever_is_left_of_it() {
    for port in ["af_packet", "af_xdp", "xdp_live"] {
        let mut controller = agent_on_a_link();
        let params = params(&[("port", port.into()), ("duration_ns", 600_000_000_000u64.into())]);
        controller.start_probe(1, "packet_trial", params);
        assert_eq!(text(&controller.receive(), "type"), "started");
        std::thread::sleep(std::time::Duration::from_millis(200));
        controller.send("cancel", &[("id", 2.into()), ("target", 1.into())]);
        let end = controller.until_end_of(1).pop().unwrap();
        assert_eq!(text(&end, "code"), "cancelled", "{end}");
    }
}
