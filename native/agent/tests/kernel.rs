//! The probe and the load of kernels, as a controller sees them.

mod controller;

use controller::{Controller, field, integers, real, text, unsigned};
use rmpv::Value;

fn params(kernel: &[(&str, Value)]) -> Value {
    let common: [(&str, Value); 6] = [
        ("seed", 7.into()),
        ("threads", 2.into()),
        ("warmup_ns", 20_000_000.into()),
        ("duration_ns", 300_000_000.into()),
        ("slice_ns", 100_000_000.into()),
        ("intensity_percent", 50.into()),
    ];
    Value::Map(common.into_iter().chain(kernel.iter().cloned()).map(|(name, value)| (name.into(), value)).collect())
}

fn measured(controller: &mut Controller, id: u64, kernel: &[(&str, Value)]) -> Value {
    controller.start_probe(id, "kernel", params(kernel));
    let mut messages = controller.until_end_of(id);
    assert_eq!(text(&messages[0], "type"), "started", "{messages:?}");
    let result = messages.pop().unwrap();
    assert_eq!(text(&result, "type"), "result", "{result}");
    result
}

#[test]
fn every_kernel_counts_its_work_by_threads_and_slices() {
    let folder = std::env::temp_dir();
    let disk = |order: &str, operation: &str| {
        vec![
            ("kernel", "disk".into()),
            ("order", order.into()),
            ("operation", operation.into()),
            ("folder", folder.to_str().unwrap().into()),
            ("block_bytes", 4096.into()),
            ("file_bytes", (1 << 20).into()),
        ]
    };
    let memory = |access: &str, element: &str| {
        let named = [("access", access.into()), ("element", element.into()), ("block_bytes", (4 << 20).into())];
        [vec![("kernel", "memory".into())], named.to_vec()].concat()
    };
    let kernels: [(&str, Vec<(&str, Value)>); 11] = [
        ("dhrystones", vec![("kernel", "integer".into())]),
        ("whetstone cycles", vec![("kernel", "floating".into())]),
        ("bytes", memory("read", "simd")),
        ("bytes", memory("copy", "float")),
        ("loads", vec![("kernel", "latency".into()), ("block_bytes", (4 << 20).into())]),
        ("bytes", disk("sequential", "write")),
        ("bytes", disk("random", "write-flush")),
        ("wake-ups", vec![("kernel", "wake".into()), ("period_ns", 1_000_000.into())]),
        ("lines", vec![("kernel", "cache".into()), ("block_bytes", (4 << 20).into())]),
        ("processes", vec![("kernel", "fork".into())]),
        ("received ns", vec![("kernel", "share".into())]),
    ];
    let mut controller = Controller::greeted();
    for (id, (unit, kernel)) in (1..).zip(kernels) {
        let result = measured(&mut controller, id, &kernel);
        assert_eq!(text(&result, "value.unit"), unit);
        assert!(unsigned(&result, "value.units") > 0 && unsigned(&result, "value.elapsed_ns") >= 300_000_000);
        let Value::Array(threads) = field(&result, "value.threads") else { panic!("{result}") };
        assert_eq!(threads.len(), 2);
        let of_threads: u64 = threads.iter().map(|thread| unsigned(thread, "units")).sum();
        assert_eq!(unsigned(&result, "value.units"), of_threads);
        for thread in threads {
            let Value::Array(slices) = field(thread, "slice_units") else { panic!("{thread}") };
            assert_eq!(unsigned(thread, "units"), slices.iter().map(|units| units.as_u64().unwrap()).sum::<u64>());
        }
        assert!(real(&result, "value.frequency_before_hz") > 1e8 && real(&result, "value.frequency_after_hz") > 1e8);
        let has_latency = unit == "wake-ups" || kernel[0].1.as_str() == Some("disk");
        assert_eq!(field(&result, "value.latency").is_nil(), !has_latency, "{unit}");
        if has_latency {
            let known = integers(&result, "value.latency.counts").iter().sum::<i64>() as u64;
            let counted = unsigned(&result, "value.units") / if unit == "bytes" { 4096 } else { 1 };
            // A wake-up may be late for several periods; nothing of the warm-up counts.
            assert!(known == counted || unit == "wake-ups" && known > counted, "{known} of {counted} {unit}");
        }
    }
}

#[test]
fn a_kernel_beside_a_load_of_kernels_reports_both() {
    let mut controller = Controller::greeted();
    let load =
        Value::Map(vec![("name".into(), "kernel".into()), ("params".into(), params(&[("kernel", "floating".into())]))]);
    let probe = [("name", "kernel".into()), ("params", params(&[("kernel", "integer".into())])), ("load", load)];
    let answer = controller.ask(1, "probe", &probe);
    assert_eq!(text(&answer, "type"), "result", "{answer}");
    assert_eq!(text(&answer, "value.load.unit"), "whetstone cycles");
    assert_eq!(unsigned(&answer, "value.load.intensity_percent"), 50);
    assert!(unsigned(&answer, "value.load.units") > 0 && field(&answer, "value.load.error").is_nil());
}

#[test]
fn what_a_kernel_cannot_do_is_named() {
    let mut controller = Controller::greeted();
    let huge = [("kernel", "latency".into()), ("block_bytes", (1u64 << 40).into())];
    let small = [("kernel", "memory".into()), ("access", "read".into()), ("element", "simd".into())];
    for (id, (kernel, code, word)) in (1..).zip([
        (&huge[..], "os", "memory"),
        (&small[..], "bad-request", "block_bytes"),
        (&[], "bad-request", "kernel"),
    ]) {
        let answer = controller.ask(id, "probe", &[("name", "kernel".into()), ("params", params(kernel))]);
        assert_eq!(text(&answer, "code"), code, "{answer}");
        assert!(text(&answer, "message").contains(word), "{answer}");
    }
}
