// SPDX-License-Identifier: Apache-2.0
//! linkd's session with a real switch: empty, full, killed, and taken over.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use p4::bench::{in_namespace, pair};
use p4::control::Control;
use p4::frame::Frame;
use p4::shim::Shim;
use p4::target::{self, DEVICE, Place, SoftSwitch};
use smoke::cpus::Cpus;
use smoke::directory::Directory;
use smoke::namespace::Namespace;
use smoke::wait;
use smoke::wire::Wire;
use switch::{
    Client, Config, Loss, Match, News, Phase, Program, Sides, Stages, Status, Switch, Target,
};
use tokio::runtime::Runtime;

const BOX: Sides<u16> = Sides { wan: 1, client: 2 };
const HOSTS: Sides<u16> = Sides { wan: 3, client: 4 };
const ELECTION: u64 = 10;
const HIGHER: u64 = 11;
/// Instance of the dataplane, which does not run here.
const INSTANCE: u64 = 77;
/// Generation of its rules.
const RULES: u64 = 1;
const CLIENTS: u16 = 1_000;
const FIRST: u16 = 3;
const LIMIT: Duration = Duration::from_secs(30);

/// A switch and a session with it, in a namespace.
struct Bed {
    namespace: Arc<Namespace>,
    switch: Option<SoftSwitch>,
    wires: BTreeMap<u16, Wire>,
    runtime: Runtime,
    session: Switch,
    news: Arc<Mutex<Vec<News>>>,
    directory: Directory,
    starts: u32,
}

fn on_session(
    test: impl FnOnce(&mut Bed) -> anyhow::Result<()> + Send + 'static,
) -> anyhow::Result<()> {
    in_namespace(|namespace| {
        let mut bed = Bed::new(namespace)?;
        test(&mut bed).map_err(|e| {
            let status = bed.session.status();
            let said = bed.switch.as_ref().map_or_else(String::new, SoftSwitch::said);
            anyhow!("{e:#}\n{status:?}\n{said}")
        })
    })
}

impl Bed {
    fn new(namespace: &Arc<Namespace>) -> anyhow::Result<Self> {
        let ports = [BOX.wan, BOX.client, HOSTS.wan, HOSTS.client];
        for port in ports {
            pair(namespace, port)?;
        }
        let wires = ports.map(|port| Ok((port, Wire::open(namespace, &format!("t{port}"))?)));
        let wires = wires.into_iter().collect::<anyhow::Result<_>>()?;
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let (program, p4info) = target::Target::compiled();
        let config = Config {
            address: Place::Tcp.address(),
            tls: None,
            device: DEVICE,
            election: ELECTION,
            target: if target::Target::is_bmv2() { Target::Bmv2 } else { Target::Swx },
            boxes: vec![BOX],
            host_ports: Sides { wan: vec![HOSTS.wan], client: vec![HOSTS.client] },
            mirror_port: None,
            stages: Stages { classifies: true, loses: true, marks: true },
            program: Program::embedded(program, p4info),
        };
        let news = Arc::<Mutex<Vec<News>>>::default();
        let heard = Arc::clone(&news);
        let session = {
            let _inside = runtime.enter();
            Switch::start(config, move |said| {
                heard.lock().unwrap_or_else(PoisonError::into_inner).push(said);
            })
        };
        let namespace = Arc::clone(namespace);
        let directory = Directory::new()?;
        let (switch, starts) = (None, 0);
        Ok(Self { namespace, switch, wires, runtime, session, news, directory, starts })
    }

    fn start(&mut self) -> anyhow::Result<()> {
        let program = target::Target::find().map_err(|lack| anyhow!("{lack:?}"))?;
        let ports = self.wires.keys().map(|port| (*port, format!("sw{port}")));
        self.starts += 1;
        let log = self.directory.path(&format!("switch-{}.log", self.starts));
        self.switch = Some(SoftSwitch::start(
            &program,
            &self.namespace,
            &Vec::from_iter(ports),
            log,
            &Place::Tcp,
        )?);
        Ok(())
    }

    fn kill(&mut self) -> anyhow::Result<()> {
        Ok(self.switch.take().context("no switch runs")?.kill()?)
    }

    /// Waits until the status of the session satisfies a condition.
    fn until(&self, what: &str, is: impl Fn(&Status) -> bool) -> anyhow::Result<Status> {
        let status = wait::until(what, LIMIT, || Ok(Some(self.session.status()).filter(&is)))?;
        Ok(status)
    }

    fn ready(&self) -> anyhow::Result<Status> {
        self.until("the switch is ready", |s| s.phase == Phase::Ready)
    }

    fn news(&self) -> Vec<News> {
        std::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reports the dataplane and its clients, as linkd does.
    fn clients(&self, loss: Loss) -> anyhow::Result<switch::Offload> {
        let offload =
            self.runtime.block_on(self.session.offload(INSTANCE, RULES, loss, Loss::None));
        ensure!(offload.epoch != 0, "the switch is not used: {offload:?}");
        self.session.in_use(&offload);
        let clients = (FIRST..FIRST + CLIENTS).map(|number| Client {
            number,
            matches: vec![Match::Prefix(IpAddr::V4(of_client(number)), 32)],
        });
        self.session.set_clients(INSTANCE, RULES, clients.collect());
        Ok(offload)
    }

    /// A host's frame leaves at the box with the client's number and the epoch.
    fn classified(&self, number: u16, epoch: u16) -> anyhow::Result<()> {
        let frame = Frame::v4(Ipv4Addr::new(192, 0, 2, 1), of_client(number)).bytes();
        let [host, to_box] = [HOSTS.wan, BOX.wan].map(|port| &self.wires[&port]);
        while to_box.receive()?.is_some() {}
        host.send(&frame)?;
        let came = self.came(to_box)?.context("nothing came out")?;
        let (shim, inner) = Shim::unwrap(&came).context("no shim")?;
        ensure!(inner == frame, "{inner:02x?}");
        let expected = Shim { stamp: shim.stamp, ..Shim::new(0, number, epoch) };
        ensure!(shim == expected, "{shim:?}, not {expected:?}");
        Ok(())
    }

    fn came(&self, wire: &Wire) -> anyhow::Result<Option<Vec<u8>>> {
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline {
            if let Some(frame) = wire.receive()? {
                return Ok(Some(frame));
            }
            Wire::wait(&[wire], deadline)?;
        }
        Ok(None)
    }

    /// Checks some of the clients, including the first and the last.
    fn stands(&self, offload: switch::Offload) -> anyhow::Result<()> {
        for number in (FIRST..FIRST + CLIENTS).step_by(111) {
            self.classified(number, offload.epoch)?;
        }
        self.classified(FIRST + CLIENTS - 1, offload.epoch)
    }

    fn knows_all(&self) -> anyhow::Result<Status> {
        let all = u32::from(CLIENTS);
        self.until("the switch knows all clients", |s| s.clients == all && s.message.is_empty())
    }
}

fn of_client(number: u16) -> Ipv4Addr {
    Ipv4Addr::from(0x0a4d_0000 + u32::from(number))
}

pub fn empty_switch_gets_program_and_thousand_clients(_: &Cpus) -> anyhow::Result<()> {
    on_session(|bed| {
        // The session starts before the switch.
        bed.start()?;
        let started = Instant::now();
        bed.ready()?;
        println!("    ready after {:?}", started.elapsed());
        let pushed = bed.news().iter().any(|n| matches!(n, News::Ready { pushed: true, .. }));
        ensure!(pushed, "the push of the program is not reported");
        let began = Instant::now();
        let offload = bed.clients(Loss::Independent(1 << 20))?;
        let status = bed.knows_all()?;
        let took = began.elapsed();
        println!("    {CLIENTS} clients, {} entries in all, after {took:?}", status.entries);
        ensure!(offload.forward_loss != 0 && offload.return_loss == 0, "{offload:?}");
        bed.stands(offload)?;
        // Loss ends, and half of the clients are removed.
        let half = (FIRST..FIRST + CLIENTS / 2).map(|number| Client {
            number,
            matches: vec![Match::Prefix(IpAddr::V4(of_client(number)), 32)],
        });
        bed.session.set_clients(INSTANCE, RULES, half.collect());
        let left = u32::from(CLIENTS / 2);
        bed.until("half of the clients are gone", |s| s.clients == left)?;
        bed.classified(FIRST, offload.epoch)?;
        ensure!(bed.classified(FIRST + CLIENTS - 1, offload.epoch).is_err(), "it is still known");
        Ok(())
    })
}

pub fn killed_switch_is_restored(_: &Cpus) -> anyhow::Result<()> {
    on_session(|bed| {
        bed.start()?;
        bed.ready()?;
        let before = bed.clients(Loss::Independent(1 << 20))?;
        bed.knows_all()?;
        bed.stands(before)?;
        bed.news();
        bed.kill()?;
        bed.until("the switch is lost", |s| s.phase == Phase::Lost)?;
        ensure!(bed.news().iter().any(|n| matches!(n, News::Lost { .. })), "no word of its end");
        bed.start()?;
        let started = Instant::now();
        bed.ready()?;
        // linkd is notified and does the same.
        let after = bed.clients(Loss::Independent(1 << 20))?;
        let status = bed.knows_all()?;
        println!(
            "    {CLIENTS} clients restored {:?} after the start of the switch; the session reports {:?}",
            started.elapsed(),
            status.restored
        );
        ensure!(after.epoch != before.epoch, "numbers of before are believed: {after:?}");
        bed.stands(after)
    })
}

pub fn session_resumes_after_other_controller_leaves(_: &Cpus) -> anyhow::Result<()> {
    on_session(|bed| {
        bed.start()?;
        bed.ready()?;
        let offload = bed.clients(Loss::None)?;
        bed.knows_all()?;
        bed.news();
        let other = Control::connect(HIGHER)?;
        bed.until("the switch is taken", |s| s.phase == Phase::Taken)?;
        ensure!(bed.news().iter().any(|n| matches!(n, News::Taken { .. })), "no word of it");
        // It resets the switch.
        other.push()?;
        drop(other);
        bed.ready()?;
        let again = bed.clients(Loss::None)?;
        bed.knows_all()?;
        ensure!(again.epoch != offload.epoch, "the stamps of before are believed");
        bed.stands(again)
    })
}
