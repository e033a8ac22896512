// SPDX-License-Identifier: Apache-2.0
//! The configuration of the dataplane: from the command line, else the box's file, else
//! the defaults.

use boxfile::{
    BoxFile, BoxFileError, FindError, Huge, Idle, MOST_WORKERS, Memory, Roots, Switch, SwitchError,
};
use emu::units::Nanos;
use thiserror::Error;

use crate::arguments::Arguments;
use crate::pairs::{PortPair, PortsError, pairs};

/// `--copy-break`: above it the time that a kept buffer saves is worth its memory
/// (docs/adr/0002).
const COPY_BREAK: u32 = 1024;

/// The configuration of the dataplane.
#[derive(Clone, Debug)]
pub struct Choices {
    /// By number.
    pub pairs: Vec<PortPair>,
    /// Each worker's core.
    pub cores: Vec<usize>,
    pub idle: Idle,
    /// Bytes of the packet store.
    pub memory: u64,
    /// Bytes of buffers for frames that are not copied.
    pub buffers: u64,
    /// Frames of up to this length are copied.
    pub copy_break: u32,
    /// The longest frame, if it is not what the ports carry.
    pub max_frame: Option<u32>,
    /// Clients that a worker makes at most.
    pub max_clients: u32,
    /// After how long a client that was made for an address expires; zero: never.
    pub client_idle: Nanos,
    /// Hugepages.
    pub huge: Huge,
    /// The P4 switch between the hosts and the box.
    pub switch: Option<Switch>,
}

/// Why options and file do not make a dataplane.
#[derive(Debug, Error)]
pub enum ChoiceError {
    /// The file.
    #[error("{0}")]
    File(#[from] BoxFileError),
    /// The ports.
    #[error("{0}")]
    Ports(#[from] PortsError),
    /// The switch in the file.
    #[error("{0}")]
    Switch(#[from] SwitchError),
    /// Several pairs behind a switch.
    #[error(
        "{0} port pairs behind a switch: it is connected to one pair; give one, or leave [switch] \
         out of the box's file"
    )]
    PairsBehind(usize),
    /// A switch that is connected to two VLANs.
    #[error(
        "a hairpin pair behind a switch: the switch is connected to two ports; leave [switch] out of \
         the box's file, or give each port its own device"
    )]
    HairpinBehind,
    /// Workers and cores differ in number.
    #[error("{workers} workers on {} cores {cores:?}: give each worker a core of its own, \
             with --core or under [workers] of the box's file", cores.len())]
    Count {
        /// How many workers.
        workers: usize,
        /// The cores given.
        cores: Vec<usize>,
    },
    /// A core is given twice.
    #[error("core {0} is given to two workers: give each one its own")]
    Shared(usize),
    /// A core that is not there.
    #[error("there is no core {core} for this process: it may run on {may:?}")]
    Core {
        /// Asked for.
        core: usize,
        /// Available cores.
        may: Vec<usize>,
    },
    /// Too few cores.
    #[error(
        "{workers} workers need as many cores, and this process may run on {may:?}: give \
             fewer --workers"
    )]
    Cores {
        /// Asked for.
        workers: usize,
        /// Available cores.
        may: Vec<usize>,
    },
}

impl ChoiceError {
    /// Whether the request is valid but this machine cannot do it.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Core { .. }
                | Self::Cores { .. }
                | Self::Ports(PortsError::Device(FindError::None { .. }))
        )
    }
}

impl Choices {
    /// Brings the command line and the file that it names together, for a process that runs on
    /// the cores `may`, and may pin threads to cores for which `can` is true.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn new(
        arguments: &Arguments,
        may: &[usize],
        can: impl Fn(usize) -> bool,
    ) -> Result<Self, ChoiceError> {
        let file = match &arguments.box_file {
            Some(path) => BoxFile::read(path)?,
            None => BoxFile::default(),
        };
        Self::merge(arguments, &file, may, can, &Roots::default())
    }

    fn merge(
        arguments: &Arguments,
        file: &BoxFile,
        may: &[usize],
        can: impl Fn(usize) -> bool,
        roots: &Roots,
    ) -> Result<Self, ChoiceError> {
        file.check()?;
        let (workers, memory) = (&file.workers, &file.memory);
        // Both are within 32 bits: the file was checked.
        let number = |value: Option<u64>| value.and_then(|v| u32::try_from(v).ok());
        let (max_frame, copy_break) = (number(memory.max_frame), number(memory.copy_break));
        let pairs = pairs(&arguments.ports, file, roots)?;
        let cores = cores(arguments, file, may, can)?;
        let switch = file.switch.as_ref().map(Switch::new).transpose()?;
        if switch.is_some() && pairs.len() != 1 {
            return Err(ChoiceError::PairsBehind(pairs.len()));
        }
        if switch.is_some() && pairs.iter().any(|pair| pair.vlans().is_some()) {
            return Err(ChoiceError::HairpinBehind);
        }
        let client_idle = arguments.client_idle.or(memory.client_idle);
        let client_idle = client_idle.unwrap_or(Memory::CLIENT_IDLE);
        Ok(Self {
            pairs,
            cores,
            idle: arguments.idle.or(workers.idle).unwrap_or_default(),
            memory: arguments.memory.or(memory.packets).unwrap_or(Memory::PACKETS),
            buffers: arguments.buffers.or(memory.buffers).unwrap_or(0),
            copy_break: arguments.copy_break.or(copy_break).unwrap_or(COPY_BREAK),
            max_frame: arguments.max_frame.or(max_frame),
            max_clients: arguments
                .max_clients
                .or(memory.max_clients)
                .unwrap_or(Memory::MAX_CLIENTS),
            client_idle: Nanos(client_idle),
            huge: arguments.huge.or(memory.huge).unwrap_or_default(),
            switch,
        })
    }
}

/// The workers' cores. A worker must stay on its core: frames that it sends on a kernel interface
/// would be reordered.
fn cores(
    arguments: &Arguments,
    file: &BoxFile,
    may: &[usize],
    can: impl Fn(usize) -> bool,
) -> Result<Vec<usize>, ChoiceError> {
    let given = !arguments.core.is_empty();
    let cores = if given { Some(&arguments.core) } else { file.workers.cores.as_ref() };
    // Cores on the command line determine the number of workers, not the file.
    let count = match arguments.workers {
        None if given => None,
        workers => workers.or(file.workers.count),
    };
    let Some(cores) = cores else {
        let workers = usize::from(count.unwrap_or(1));
        let first = may.len().checked_sub(workers);
        return match first {
            Some(first) => Ok(may[first..].to_vec()),
            None => Err(ChoiceError::Cores { workers, may: may.to_vec() }),
        };
    };
    let workers = count.map_or(cores.len(), usize::from);
    if workers != cores.len() || !(1..=usize::from(MOST_WORKERS)).contains(&workers) {
        return Err(ChoiceError::Count { workers, cores: cores.clone() });
    }
    for (n, core) in cores.iter().enumerate() {
        if cores[..n].contains(core) {
            return Err(ChoiceError::Shared(*core));
        }
        // A process has to name an isolated core.
        if !may.contains(core) && !can(*core) {
            return Err(ChoiceError::Core { core: *core, may: may.to_vec() });
        }
    }
    Ok(cores.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    const PORTS: [&str; 4] = ["--port", "wan=net_null", "--port", "client=net_null"];

    fn choose(words: &[&str], file: &str) -> Result<Choices, String> {
        let line = ["linkd-dataplane"].iter().chain(words);
        let arguments = Arguments::try_parse_from(line).map_err(|e| e.to_string())?;
        let file = toml::from_str(file).unwrap();
        let nowhere = Roots { sys: "/nonexistent".into(), run: "/nonexistent".into() };
        let isolated = |core| core == 6;
        Choices::merge(&arguments, &file, &[0, 1, 2, 3], isolated, &nowhere)
            .map_err(|e| e.to_string())
    }

    fn specs(choices: &Choices) -> Vec<String> {
        crate::pairs::ports(&choices.pairs).map(|p| p.spec.to_string()).collect()
    }

    fn with_ports(words: &[&str], file: &str) -> Result<Choices, String> {
        choose(&[&PORTS[..], words].concat(), file)
    }

    #[test]
    fn every_command_of_the_documentation_parses() {
        pages::commands_parse("linkd-dataplane", 3, |words| Arguments::try_parse_from(words));
    }

    #[test]
    fn isolated_core_is_used_if_named() {
        assert_eq!(with_ports(&["--core", "6"], "").unwrap().cores, [6]);
        assert_eq!(with_ports(&[], "[workers]\ncores = [3, 6]").unwrap().cores, [3, 6]);
        assert!(with_ports(&["--core", "5"], "").is_err());
    }

    #[test]
    fn default_is_one_worker_on_last_core() {
        let choices = with_ports(&[], "").unwrap();
        assert_eq!(choices.cores, [3]);
        assert_eq!((choices.memory, choices.buffers, choices.copy_break), (3 << 30, 0, COPY_BREAK));
        assert_eq!((choices.max_clients, choices.max_frame), (16, None));
        assert_eq!(choices.client_idle, Nanos::from_secs(600));
        assert_eq!(with_ports(&["--core", "1"], "").unwrap().cores, [1]);
        assert_eq!(with_ports(&["--core", "1,0"], "").unwrap().cores, [1, 0]);
        assert_eq!(with_ports(&["--workers", "2"], "").unwrap().cores, [2, 3]);
    }

    #[test]
    fn option_overrides_file() {
        let file = "[ports]\nwan = \"net_ring\"\nclient = \"net_null1\"\n[workers]\ncores = [2, 3]\n\
                    idle = \"adaptive\"\n[memory]\npackets = \"1 MiB\"\nmax_clients = 7\nclient_idle = \"90 s\"";
        let choices = choose(&["--box", "x"], file).unwrap();
        assert_eq!(specs(&choices), ["net_ring", "net_null1"]);
        assert_eq!((choices.cores, choices.idle), (vec![2, 3], Idle::Adaptive));
        assert_eq!((choices.memory, choices.max_clients), (1 << 20, 7));
        assert_eq!(choices.client_idle, Nanos::from_secs(90));
        let line = ["--box", "x", "--core", "0", "--idle", "busy", "--memory", "2 MiB"];
        let choices = choose(&[&line[..], &PORTS[..2]].concat(), file).unwrap();
        assert_eq!(specs(&choices), ["net_null", "net_null1"]);
        assert_eq!((choices.cores, choices.idle, choices.memory), (vec![0], Idle::Busy, 2 << 20));
    }

    #[test]
    fn ports_in_file_are_strings_or_tables() {
        let file = "[ports]\nwan.pci = \"01:00.1\"\nclient.kernel = \"eth1\"";
        let found = specs(&choose(&["--box", "x"], file).unwrap());
        assert_eq!(found, ["0000:01:00.1", "net_af_packet,iface=eth1"]);
        let file = "[ports]\nwan.select.id = \"8086:1572\"\nclient = \"net_null\"";
        let error = choose(&["--box", "x"], file).unwrap_err();
        assert!(error.contains("selects id = \"8086:1572\""), "{error}");
        let of = |select| {
            ChoiceError::from(PortsError::from(FindError::None {
                name: "wan".into(),
                select,
                there: Vec::new(),
            }))
        };
        assert!(of("x".into()).is_refusal());
        // An option goes before it.
        let line = ["--box", "x", "--port", "wan=net_ring"];
        assert!(choose(&line, file).is_ok());
        let file = "[ports]\nwan = \"1:0.0\"\nclient = \"01:00.0\"";
        assert!(choose(&["--box", "x"], file).unwrap_err().contains("ports.wan and ports.client"));
    }

    #[test]
    fn mismatch_of_workers_and_cores_is_refused_with_numbers() {
        for (words, file, message) in [
            (&["--workers", "2", "--core", "1"][..], "", "2 workers on 1 cores [1]"),
            (&["--workers", "1"], "[workers]\ncores = [1, 2]", "1 workers on 2 cores"),
            (&[], "[workers]\ncores = []", "0 workers on 0 cores"),
            (&[], "[workers]\ncores = [1]\ncount = 3", "3 workers on 1 cores"),
            (&[], "[workers]\ncount = 0", "workers.count in the box's file is 0"),
            (&["--core", "1,1"], "", "core 1 is given to two workers"),
            (&["--core", "4"], "", "no core 4 for this process: it may run on [0, 1, 2, 3]"),
            (&["--workers", "5"], "", "5 workers need as many cores"),
            (&["--workers", "0"], "", "0 is not in 1..=64"),
            (&[], "[memory]\nmax_frame = \"60 B\"", "memory.max_frame in the box's file is 60"),
            (&["--max-frame", "60"], "", "60 is not in 590..=10224"),
            (&[], "[memory]\nmax_clients = 0", "it has to be 1 to 100000"),
        ] {
            let error = with_ports(words, file).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn switch_is_that_of_the_file_for_any_number_of_workers() {
        let file = "[switch]\ntarget = \"bmv2\"\nbox_wan = 0\nbox_client = 1\nwan = [2]\n\
                    client = [3]\n";
        assert!(with_ports(&[], file).unwrap().switch.is_some());
        assert_eq!(with_ports(&[], "").unwrap().switch, None);
        let two = with_ports(&["--workers", "2"], file).unwrap();
        assert!(two.switch.is_some() && two.cores.len() == 2);
        let error = with_ports(&[], &format!("{file}election = 0")).unwrap_err();
        assert!(error.contains("switch.election"), "{error}");
    }

    #[test]
    fn missing_or_repeated_port_is_refused() {
        for (words, file, message) in [
            (&PORTS[..2], "", "no port `client`"),
            (&["--box", "x"], "[ports]\nclient = \"net_null\"", "no port `wan`"),
            (&["--port", "wan=net_null0", "--port", "wan=net_null1"], "", "`wan` is given twice"),
            (
                &["--box", "x"],
                "[ports]\nwan = \"eth0\"\nclient = \"net_null\"",
                "port `eth0` is not",
            ),
            (&[], "", "--port <NAME=SPEC>"),
            (&["--port", "wan.a=net_null0"], "", "no port `client.a`: give --port client.a=SPEC"),
            (&["--port", "client.a=net_null0"], "", "no port `wan.a`"),
            (
                &["--port", "client.a=net_null0", "--port", "client.a=net_null1"],
                "",
                "port `client.a` is given twice: name the other one `wan.a`",
            ),
        ] {
            let error = choose(words, file).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
        for others in [&PORTS[..], &PORTS[..2]] {
            let stranger = [others, &["--port", "lan=net_null"]].concat();
            assert!(choose(&stranger, "").unwrap_err().contains("no port `lan`"));
        }
    }

    #[test]
    fn pairs_are_numbered_in_their_order_and_take_ports_from_options_and_file() {
        let line = ["--port", "client.b=net_null0", "--port", "wan.b=net_null1", "--box", "x"];
        let file = "[ports]\nwan.a = \"net_null2\"\nclient.a = \"net_null3\"\n\
                    client.b = \"net_null9\"";
        let choices = choose(&line, file).unwrap();
        let names: Vec<_> =
            choices.pairs.iter().map(|pair| pair.name.unwrap().to_string()).collect();
        assert_eq!(names, ["b", "a"]);
        assert_eq!(specs(&choices), ["net_null1", "net_null0", "net_null2", "net_null3"]);
        let ports = choices.pairs[1].ports.each_ref().map(|port| port.name.as_str());
        assert_eq!(ports, ["wan.a", "client.a"]);
        assert_eq!(with_ports(&[], "").unwrap().pairs[0].name, None);
    }

    #[test]
    fn hairpin_pair_is_two_vlans_of_one_device() {
        let hairpin = |wan: &str, client: &str, file: &str| {
            let ports = [format!("wan.h={wan}"), format!("client.h={client}")];
            choose(&["--port", &ports[0], "--port", &ports[1]], file)
        };
        let choices = hairpin("net_null0,vlan=100", "net_null0,vlan=200", "").unwrap();
        assert_eq!(choices.pairs[0].vlans(), Some([100, 200]));
        assert_eq!(crate::pairs::devices(&choices.pairs).count(), 1);
        assert_eq!(with_ports(&[], "").unwrap().pairs[0].vlans(), None);
        let switch = "[switch]\ntarget = \"bmv2\"\nbox_wan = 0\nbox_client = 1\nwan = [2]\n\
                      client = [3]\n";
        for (wan, client, file, message) in [
            ("net_null0,vlan=1", "net_null0,vlan=1", "", "have the same vlan=1: give each its own"),
            ("net_null0,vlan=1", "net_null1,vlan=2", "", "are no hairpin pair"),
            ("net_null0,vlan=1", "net_null0", "", "`wan.h` and `client.h` are no hairpin pair"),
            ("net_null0", "net_null1,vlan=2", "", "each has its own vlan=N"),
            (
                "net_null0,vlan=0",
                "net_null0,vlan=2",
                "",
                "`vlan=0` has to be a number from 1 to 4094",
            ),
            ("net_null0,vlan=1", "net_null0,vlan=2", switch, "a hairpin pair behind a switch"),
        ] {
            let error = hairpin(wan, client, file).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
        let file = "[ports]\nwan = { pci = \"01:00.0\", vlan = 7 }\n\
                    client = { pci = \"01:00.0\", vlan = 8 }";
        assert_eq!(choose(&["--box", "x"], file).unwrap().pairs[0].vlans(), Some([7, 8]));
    }

    #[test]
    fn invalid_pairs_are_refused() {
        let pair = |name: &str| {
            [format!("wan.{name}=net_null"), format!("client.{name}=net_null")]
                .into_iter()
                .flat_map(|port| ["--port".to_owned(), port])
        };
        let switch = "[switch]\ntarget = \"bmv2\"\nbox_wan = 0\nbox_client = 1\nwan = [2]\n\
                      client = [3]\n";
        let many: Vec<String> = (0..17).map(|n| format!("p{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for (names, file, message) in [
            (&many[..], "", "17 port pairs: a box has at most 16; leave 1 of them out"),
            (&["0123456789abcdefg"], "", "a pair's name has 1 to 16 of A-Z"),
            (
                &["default"],
                "",
                "port pair `default`: \"default\" is not a pair that rules can name",
            ),
            (&["a", "b"], switch, "2 port pairs behind a switch: it is connected to one pair"),
            (&["a"], "[ports]\nwan = \"net_null\"", "port `wan` is of a pair without a name"),
        ] {
            let words: Vec<String> = names.iter().flat_map(|name| pair(name)).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let error = choose(&words, file).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
        let words: Vec<String> = many[..16].iter().flat_map(|name| pair(name)).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        assert_eq!(choose(&words, "").unwrap().pairs.len(), 16);
        let words: Vec<String> = pair("a").collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        assert!(choose(&words, switch).is_ok(), "one pair with a name");
    }
}
