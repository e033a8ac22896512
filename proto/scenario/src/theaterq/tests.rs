// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::{Action, Item, Scenario, Timeline};
use profile::Part;
use proptest::prelude::*;
use proto::linkemu::v1 as pb;

fn import() -> Import {
    Import { name: "it".into(), profile: "transparent".into(), ..Import::default() }
}

fn read(import: &Import, text: &str) -> Result<Imported, ImportError> {
    import.read(Some(("a.csv", &mut text.as_bytes())), None)
}

fn items(imported: &Imported) -> Vec<Item> {
    let scenario = Scenario::from_toml(&imported.toml).unwrap_or_else(|e| panic!("{e}"));
    let items: Result<Vec<_>, _> =
        Timeline::new(&scenario, None, Default::default()).take(1_000).collect();
    items.unwrap()
}

/// When each step is, and what it changes in each direction.
fn parts(imported: &Imported) -> Vec<(u64, [Option<Part>; 2])> {
    let patches = items(imported).into_iter().filter_map(|item| match item.action {
        Action::Patch(parts) => Some((item.at_ns, [parts.forward.clone(), parts.back.clone()])),
        _ => None,
    });
    patches.collect()
}

/// The values of that.
fn pipes(imported: &Imported) -> Vec<(u64, [Option<pb::Pipe>; 2])> {
    let pipes = |ways: [Option<Part>; 2]| ways.map(|part| part.map(|part| part.pipe));
    parts(imported).into_iter().map(|(at, ways)| (at, pipes(ways))).collect()
}

#[test]
fn a_row_is_in_force_for_its_keep_with_its_values() {
    // 0.5 % is 21474836.475 of 2^32-1.
    let text = "# made by hand\n500000,20000000,12000000,0,10\n\
                250000,30000000,0,21474836,10\n250000,30000000,-1,4294967295,20\n";
    let imported = read(&import(), text).unwrap();
    assert_eq!(imported.remarks, [""; 0]);
    let pipes = pipes(&imported);
    assert_eq!(pipes.iter().map(|p| p.0 / 1_000_000).collect::<Vec<_>>(), [0, 500, 750]);
    let [first, second, third] = [0, 1, 2].map(|i| pipes[i].1[0].clone().unwrap());
    assert!(pipes.iter().all(|(_, ways)| ways[1].is_none()));
    let limit = |pipe: &pb::Pipe| pipe.queue.map(|queue| queue.limit_bytes);
    let base = |pipe: &pb::Pipe| pipe.delay.as_ref().map(|delay| delay.base_ns);
    assert_eq!((first.rate_bps, base(&first)), (Some(12_000_000), Some(20_000_000)));
    assert_eq!((limit(&first), first.packet_loss), (Some(11 * FRAME_BYTES), 0.0));
    // Unchanged values are not repeated.
    assert_eq!((second.rate_bps, base(&second)), (Some(0), Some(30_000_000)));
    assert_eq!((limit(&second), second.packet_loss), (None, 21_474_836.0 / 4_294_967_295.0));
    assert_eq!((third.rate_bps, base(&third)), (None, None));
    assert_eq!((limit(&third), third.packet_loss), (Some(21 * FRAME_BYTES), 1.0));
    // The profile is first, and the last row holds to its end.
    let items = items(&imported);
    assert_eq!(items[0].action, Action::Profile("transparent".into()));
    assert_eq!((items.len(), items[4].at_ns), (5, 1_000_000_000));
}

#[test]
fn the_extended_format_has_duplicates_and_may_end_early() {
    let bytes = Import { bytes: true, ..import() };
    for tail in ["", ",1", ",1,1"] {
        let text = format!("1000,5,0,8000000,0,3000,2147483648,0{tail}\n");
        let pipe = pipes(&read(&bytes, &text).unwrap())[0].1[0].clone().unwrap();
        assert!((pipe.duplicate - 0.5).abs() < 1e-9);
        assert_eq!(pipe.queue.unwrap().limit_bytes, 3_000 + FRAME_BYTES);
    }
}

#[test]
fn a_header_names_what_there_is() {
    let text = "keep, Rate\n1000,5000\n2000,6000\n";
    let pipes = pipes(&read(&import(), text).unwrap());
    let rates: Vec<_> = pipes.iter().map(|(_, ways)| ways[0].clone().unwrap().rate_bps).collect();
    assert_eq!(rates, [Some(5_000), Some(6_000)]);
    assert!(pipes.iter().all(|(_, ways)| ways[0].as_ref().unwrap().delay.is_none()));
}

#[test]
fn each_direction_has_its_trace_and_both_change_at_one_instant() {
    let (mut down, mut up) =
        (&b"KEEP,RATE\n1000,5000\n1000,6000\n"[..], &b"KEEP,LATENCY\n1000,7\n3000,8\n"[..]);
    let imported = import().read(Some(("d", &mut down)), Some(("u", &mut up))).unwrap();
    let steps = pipes(&imported);
    assert_eq!(steps.len(), 2);
    assert!(steps.iter().all(|(_, ways)| ways.iter().all(Option::is_some)));
    assert_eq!(items(&imported).last().unwrap().at_ns, 4_000_000);
    let scenario = Scenario::from_toml(&imported.toml).unwrap();
    assert_eq!((scenario.name(), scenario.source()), ("it", "d and u"));
}

#[test]
fn a_trace_may_be_repeated() {
    let forever = Import { repeated: true, ..import() };
    let text = "KEEP,RATE\n60000,5000\n60000,6000\n";
    let imported = read(&forever, text).unwrap();
    assert_eq!(Scenario::from_toml(&imported.toml).unwrap().length_ns(), None);
    let starts: Vec<_> = pipes(&imported).iter().take(5).map(|p| p.0 / 1_000_000).collect();
    assert_eq!(starts, [0, 60, 120, 180, 240]);
    let (mut one, mut other) = (text.as_bytes(), &b"KEEP,RATE\n60000,5000\n"[..]);
    let error = forever.read(Some(("d", &mut one)), Some(("u", &mut other))).unwrap_err();
    assert!(error.to_string().contains("120 ms and the other 60 ms"), "{error}");
}

#[test]
fn what_has_no_counterpart_is_refused_or_ignored_on_request() {
    let refused =
        |import: &Import, text: &str| read(import, text).map(drop).unwrap_err().to_string();
    let rows = [
        ("1000,5,7,0,0,9,0,0\n", Jitter),
        ("1000,5,0,0,0,9,1,7\n", DupDelay),
        ("1000,5,0,0,0,9,0,0,1,1\n1000,5,0,0,0,9,0,0,1,2\n", QueueId),
    ];
    for (text, column) in rows {
        let told = refused(&import(), text);
        assert!(told.contains(column.name()) && told.contains("have it ignored"), "{told}");
        let ignoring = Import { ignored: vec![column], ..import() };
        read(&ignoring, text).unwrap();
    }
    // Without duplicates, their delay is irrelevant.
    read(&import(), "1000,5,0,0,0,9,0,7\n").unwrap();
    // Order: told where TheaterQ would not keep it.
    let falling = |route: &str| {
        let text = format!("1000,9,0,0,0,9,0,0,{route}\n1000,5,0,0,0,9,0,0,{route}\n");
        read(&import(), &text).unwrap().remarks.len()
    };
    assert_eq!((falling("0"), falling("1")), (1, 0));
}

#[test]
fn bad_traces_are_refused_with_file_line_and_remedy() {
    for (text, expected) in [
        ("", "a.csv has no rows"),
        ("KEEP,RATE\n", "a.csv has no rows"),
        ("# only\n", "a.csv has no rows"),
        ("KEEP,RTE\n1,2\n", "a.csv:1: unknown column \"RTE\": the nearest is \"RATE\""),
        ("KEEP,RATE,rate\n1,2,3\n", "a.csv:1: RATE is named twice"),
        ("RATE,LOSS\n1,2\n", "a.csv:1: KEEP is missing"),
        ("1,2\n", "a.csv:1: 2 fields are neither the 5"),
        ("1000,2,5000,0,9\n1000,2,5000,0\n", "a.csv:2: 4 fields in a trace of 5 columns"),
        ("1000,2,5000,0,9\nKEEP,2,5000,0,9\n", "a.csv:2: KEEP: \"KEEP\" is no whole number"),
        ("1000,2.5,5000,0,9\n", "LATENCY: \"2.5\" is no whole number from 0 to"),
        ("1000,-2,5000,0,9\n", "LATENCY: \"-2\" is no whole number"),
        ("1000,60000000001,5000,0,9\n", "is more than 1 min"),
        ("1000,2,999,0,9\n", "RATE: 999 bit/s is not from 1 kbit/s to 400 Gbit/s, 0 or -1"),
        ("1000,2,-2,0,9\n", "RATE: \"-2\" is no whole number from -1"),
        ("1000,2,5000,4294967296,9\n", "LOSS: \"4294967296\" is no whole number from 0 to"),
        ("1000,2,5000,0,0\n", "LIMIT: 0 is no limit there"),
        ("1000,2,5000,0,4294967295\n", "LIMIT: "),
        ("0,2,5000,0,9\n", "KEEP: a row lasts 1 ms or more"),
        ("999,2,5000,0,9\n", "KEEP: a row lasts 1 ms or more"),
        ("18446744073709551615,2,5000,0,9\n", "KEEP: a row lasts 1 ms or more, and all"),
        ("99999999999999999999999,2,5000,0,9\n", "KEEP: \"99999999999999999999999\" is no"),
        ("1\u{e9}\u{ff},2,5000,0,9\n", "KEEP: "),
    ] {
        let told = read(&import(), text).map(drop).unwrap_err().to_string();
        assert!(told.contains(expected), "{text:?}: {told}");
    }
    // The place counts comments and empty lines, and line ends of both kinds.
    let told = read(&import(), "# one\r\n\r\n1000,2,5000,0,9\r\n\r\n#\r\n1000\r\n").unwrap_err();
    assert!(told.to_string().starts_with("a.csv:6: 1 fields"), "{told}");
    let endless = &mut std::io::repeat(b'#');
    let told = import().read(Some(("zero", endless)), None).unwrap_err().to_string();
    assert!(told.contains("cannot read zero: a line is longer"), "{told}");
    let endless = &mut std::io::repeat(b'\n');
    let told = import().read(Some(("zero", endless)), None).unwrap_err().to_string();
    assert!(told.contains("zero has more than 64 MiB"), "{told}");
    let many: String = (0..20_000).map(|i| format!("1000,2,{},0,9\n", 5_000 + i)).collect();
    let told = read(&import(), &many).unwrap_err().to_string();
    assert!(told.contains("20000 changes make") && told.contains("262144"), "{told}");
    // Rows that change nothing are no steps.
    let same = "1000,2,5000,0,9\n".repeat(20_000);
    assert_eq!(items(&read(&import(), &same).unwrap()).len(), 3);
    let more = "1000,2,5000,0,9\n".repeat(100_001);
    let told = read(&import(), &more).unwrap_err().to_string();
    assert!(told.contains("more than 100000 rows"), "{told}");
}

#[test]
fn names_cannot_break_out_of_the_text() {
    let odd = Import { profile: "a\" }, { profile = \"b".into(), ..import() };
    let (mut text, name) = (&b"KEEP,RATE\n1000,5000\n"[..], "x\"\n[[step]]\nprofile = \"y\" \\");
    let imported = odd.read(Some((name, &mut text)), None).unwrap();
    let scenario = Scenario::from_toml(&imported.toml).unwrap();
    assert_eq!(scenario.profiles(), ["a_ }, { profile = _b"]);
}

proptest! {
    #[test]
    fn bytes_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200), repeated: bool, in_bytes: bool,
    ) {
        let import = Import { repeated, bytes: in_bytes, ..import() };
        let _ = import.read(Some(("a", &mut bytes.as_slice())), None);
    }

    /// An imported trace is a valid scenario with the same values.
    #[test]
    fn every_trace_that_is_taken_is_a_scenario(
        rows in prop::collection::vec(
            (1_000_u64..1_000_000, 0_u64..60_000_000_000, 1_000_i64..400_000_000_000, any::<u32>(),
             1_u32..1_000_000, any::<u32>()),
            1..60,
        ),
        repeated: bool,
    ) {
        let line = |(keep, latency, rate, loss, limit, dup): &(u64, u64, i64, u32, u32, u32)| {
            format!("{keep},{latency},0,{rate},{loss},{limit},{dup},0,1,1\n")
        };
        let text: String = rows.iter().map(line).collect();
        let length: u64 = rows.iter().map(|row| row.0 * 1_000).sum();
        // A pass without end may not be shorter.
        let repeated = repeated && length >= crate::PASS_NS;
        let imported = read(&Import { repeated, ..import() }, &text).unwrap();
        let mut pipe = pb::Pipe::default();
        let mut at = 0;
        let changes: BTreeMap<_, _> = parts(&imported).into_iter().take(rows.len()).collect();
        for (keep, latency, rate, loss, limit, dup) in rows {
            if let Some(change) = changes.get(&at).and_then(|ways| ways[0].clone()) {
                let Part { pipe: new, paths } = change;
                pipe.rate_bps = new.rate_bps.or(pipe.rate_bps);
                pipe.delay = new.delay.or(pipe.delay);
                pipe.queue = new.queue.or(pipe.queue);
                let named = |path| paths.contains(&path);
                pipe.packet_loss = if named("packet_loss") { new.packet_loss } else { pipe.packet_loss };
                pipe.duplicate = if named("duplicate") { new.duplicate } else { pipe.duplicate };
            }
            let share = |n: u32| f64::from(n) / f64::from(u32::MAX);
            prop_assert_eq!(pipe.rate_bps, u64::try_from(rate).ok());
            prop_assert_eq!(pipe.delay.as_ref().unwrap().base_ns, latency);
            prop_assert_eq!(pipe.queue.unwrap().limit_bytes, (u64::from(limit) + 1) * FRAME_BYTES);
            prop_assert_eq!((pipe.packet_loss, pipe.duplicate), (share(loss), share(dup)));
            at += keep * 1_000;
        }
    }
}
