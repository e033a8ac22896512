// SPDX-License-Identifier: Apache-2.0
//! The picture: head, clients, charts of the chosen client, keys. If space is short, the least
//! needed parts are left out first.

use crate::top::format::{UNKNOWN, cut, si, time};
use crate::top::history::Series;
use crate::top::model::{Health, Model, Scenario, Use};
use crate::top::order::Sort;
use crate::top::rates::{Demand, Flow, KINDS, Row, Serving, Wait};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Sparkline, Table};
use std::time::Duration;

/// Silence above this many intervals, and above [`QUIET`], is reported.
const INTERVALS: u32 = 4;
const QUIET: Duration = Duration::from_secs(2);
/// Width of a column with a figure, in characters.
const FIGURE: u16 = 8;
/// Width of a column with drops of one kind.
const KIND: u16 = 7;
/// The least for a client's address.
const CLIENT: u16 = 10;
/// The most: an IPv6 address.
const ADDRESS: u16 = 39;
/// Failed criteria that are named in the head.
const FAILED: usize = 2;
/// Lines of the head.
const HEAD: u16 = 4;
/// Width of the label of a chart, in characters.
const LABEL: u16 = 17;

const HELP: [&str; 11] = [
    "q Esc ^C    end",
    "j k arrows  choose a client",
    "PgUp PgDn g G  far up and down",
    "s           sort by the next column",
    "d           queue, delay and drops of",
    "            both directions or one",
    "p Space     let the picture stand",
    "DELAY is queue bytes x 8 / the rate in",
    "force: an estimate (~: the mean rate,",
    "<: the rate at which it sends)",
    "OWN drops are the emulator's, or frames",
];

/// State at the time of drawing.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub interval: Duration,
    /// Time since the last snapshot.
    pub silent: Duration,
}

pub fn draw(frame: &mut Frame<'_>, model: &mut Model, moment: Moment) {
    let area = frame.area();
    // The charts take the rows that the table does not need, and at least `least`.
    let least: u16 = match area.height {
        0..14 => 0,
        14..32 => 5,
        _ => 9,
    };
    let rows = u16::try_from(model.rows.len()).unwrap_or(u16::MAX).saturating_add(2);
    let rest = area.height.saturating_sub(HEAD + 1).saturating_sub(rows);
    let chart_rows = if least == 0 { 0 } else { rest.max(least) };
    let [head, table, charts, foot] = Layout::vertical([
        Constraint::Length(area.height.min(HEAD)),
        Constraint::Fill(1),
        Constraint::Length(chart_rows),
        Constraint::Length(u16::from(area.height >= 6)),
    ])
    .areas(area);
    draw_head(frame, head, model, moment);
    draw_table(frame, table, model);
    if chart_rows > 0 {
        draw_charts(frame, charts, model);
    }
    let keys = format!(
        "q quit  j/k choose  s sort: {}  d direction: {}  p {}  ? help",
        model.sort.name(),
        model.way.name(),
        if model.paused { "go on" } else { "pause" },
    );
    frame.render_widget(Paragraph::new(keys).dim(), foot);
    if model.help {
        draw_help(frame, area);
    }
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, model: &Model, moment: Moment) {
    let [first, second] = match &model.health {
        Some(health) => figures(model, health),
        None => [Line::from("linkemu"), Line::default()],
    };
    // If there is only one line, errors take precedence.
    let state = state(model, moment);
    let lines = if area.height == 1 && model.away.is_some() {
        vec![state]
    } else {
        let used = model.used.as_ref().map(used).unwrap_or_default();
        vec![first, second, state, used]
    };
    frame.render_widget(Paragraph::new(lines), area);
}

fn figures(model: &Model, health: &Health) -> [Line<'static>; 2] {
    let mut first = vec![
        "linkemu ".into(),
        Span::from(cut(&model.link.profile, 32)).bold(),
        format!("  generation {}  clients {}", health.generation, model.rows.len()).into(),
    ];
    if health.lossy {
        first.push("  lossy".yellow());
    }
    if !health.down.is_empty() {
        first.push(format!("  no link at {}", health.down.join(" and ")).red().bold());
    }
    for (way, rate) in [("forward", model.link.forward), ("return", model.link.back)] {
        first.extend(configured(rate).map(|rate| Span::from(format!("  {way} {rate}")).dim()));
    }
    let drops = format!("emulator drops {}", health.emulator_drops);
    let second = vec![
        if health.emulator_drops > 0 { drops.red().bold() } else { drops.into() },
        format!(
            "  late p99 {}  stall {}  memory {}B of {}B",
            time(health.late_p99_ns as f64 / 1e9),
            time(health.stall_max_ns as f64 / 1e9),
            si(health.memory_bytes as f64),
            si(health.capacity_bytes as f64),
        )
        .into(),
    ];
    [Line::from(first), Line::from(second)]
}

fn state(model: &Model, moment: Moment) -> Line<'static> {
    let interval = time(moment.interval.as_secs_f64());
    let silent = moment.silent > (moment.interval * INTERVALS).max(QUIET);
    match &model.away {
        Some(why) => Line::from(cut(&format!("{why}; trying again"), 400)).red().bold(),
        None if silent => {
            let seconds = time(moment.silent.as_secs_f64());
            Line::from(format!("no news for {seconds}")).red().bold()
        }
        None if model.health.is_none() => Line::from("connecting"),
        None if model.paused => Line::from("paused").yellow(),
        None => {
            let mut line = vec![format!("live, every {interval}").dim()];
            let holder = model.used.as_ref().and_then(|used| used.holder.as_deref());
            line.extend(holder.map(|it| format!("  leased by {}", cut(it, 32)).yellow()));
            Line::from(line)
        }
    }
}

/// Certificate and scenario, as coloured spans.
fn used(used: &Use) -> Line<'static> {
    let mut spans = vec![match &used.failed {
        None => "no certificate".dim(),
        Some(failed) if failed.is_empty() => "certificate PASS".green(),
        // No packets were sent since the mark.
        Some(failed) if *failed == ["packets"] => "certificate: no packets yet".dim(),
        Some(failed) => {
            let more = failed.len().saturating_sub(FAILED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let names = failed[..failed.len().min(FAILED)].join(", ");
            format!("certificate FAIL: {names}{more}").red().bold()
        }
    }];
    spans.push(match &used.scenario {
        None => "  no scenario".dim(),
        Some(Scenario { text, is_active: true }) => format!("  scenario {}", cut(text, 64)).cyan(),
        Some(Scenario { text, .. }) => format!("  scenario {}", cut(text, 64)).dim(),
    });
    Line::from(spans)
}

/// A configured rate with its unit; `None` if it is unknown.
fn configured(rate: Serving) -> Option<String> {
    match rate {
        Serving::Unknown => None,
        Serving::Unlimited => Some("unlimited".into()),
        Serving::Down => Some("down".into()),
        Serving::At(bps) => Some(format!("{}b/s", si(bps))),
        Serving::Mean(bps) => Some(format!("~{}b/s", si(bps))),
        Serving::OnDemand(bps) => Some(format!("<{}b/s", si(bps))),
    }
}

/// The columns that fit into a width: figures of both rates, queue and delay, and of the drops
/// each kind or all in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Columns {
    client: u16,
    figures: u16,
    kinds: bool,
    drops: bool,
}

impl Columns {
    fn of(width: u16) -> Self {
        let kinds = KINDS.len() as u16 * KIND;
        let all = 4 * FIGURE;
        let fits = |figures: u16| width >= CLIENT + figures;
        let (figures, kinds, drops) = if fits(all + kinds) {
            (4, true, true)
        } else if fits(all + KIND) {
            (4, false, true)
        } else {
            ((width.saturating_sub(CLIENT) / FIGURE).min(4), false, false)
        };
        let taken = figures * FIGURE
            + match (drops, kinds) {
                (true, true) => KINDS.len() as u16 * KIND,
                (true, false) => KIND,
                _ => 0,
            };
        Self { client: width.saturating_sub(taken).min(ADDRESS), figures, kinds, drops }
    }

    fn heads(self, sort: Sort) -> Vec<Cell<'static>> {
        let head = |text: &'static str, by: Option<Sort>| {
            let line = Line::from(text).alignment(Alignment::Right);
            let chosen = by == Some(sort);
            Cell::from(if chosen { line.underlined() } else { line })
        };
        let client = Line::from("CLIENT");
        let client = if sort == Sort::Client { client.underlined() } else { client };
        let figures = [
            head("FWD b/s", Some(Sort::Forward)),
            head("RET b/s", Some(Sort::Return)),
            head("QUEUE B", Some(Sort::Queue)),
            head("DELAY", Some(Sort::Delay)),
        ];
        let mut heads = vec![Cell::from(client)];
        heads.extend(figures.into_iter().take(usize::from(self.figures)));
        match (self.drops, self.kinds) {
            (true, true) => heads.extend(KINDS.map(|kind| head(kind, Some(Sort::Drops)))),
            (true, false) => heads.push(head("DROP/s", Some(Sort::Drops))),
            _ => {}
        }
        heads
    }

    fn widths(self) -> Vec<Constraint> {
        let mut widths = vec![Constraint::Length(self.client)];
        widths.extend((0..self.figures).map(|_| Constraint::Length(FIGURE)));
        let kinds = if self.kinds { KINDS.len() } else { usize::from(self.drops) };
        widths.extend((0..kinds).map(|_| Constraint::Length(KIND)));
        widths
    }

    fn cells(self, row: &Row, flow: &Flow, mean: bool) -> Vec<Cell<'static>> {
        let figure = |text: String| Cell::from(Line::from(text).alignment(Alignment::Right));
        let rate = |value: Option<f64>| value.map_or(UNKNOWN.into(), si);
        let figures = [
            rate(row.forward.rate_bps),
            rate(row.back.rate_bps),
            si(flow.queue_bytes as f64),
            delay(flow.wait, mean),
        ];
        let mut cells = vec![Cell::from(cut(&row.client, usize::from(self.client)))];
        cells.extend(figures.into_iter().take(usize::from(self.figures)).map(figure));
        match (self.drops, self.kinds) {
            (true, true) => {
                let own = KINDS.len() - 1;
                for kind in 0..KINDS.len() {
                    let value = flow.drops.map(|drops| drops[kind]);
                    let cell = figure(rate(value));
                    let alarm = kind == own && value.is_some_and(|value| value > 0.0);
                    cells.push(if alarm { cell.style(Color::Red) } else { cell });
                }
            }
            (true, false) => cells.push(figure(rate(flow.dropping()))),
            _ => {}
        }
        cells
    }
}

/// An estimate; `~` if the rate is a mean.
fn delay(wait: Wait, mean: bool) -> String {
    match wait {
        Wait::Unknown => UNKNOWN.into(),
        Wait::Seconds(s) if mean && s > 0.0 => format!("~{}", time(s)),
        Wait::Seconds(s) => time(s),
        Wait::Forever => "down".into(),
    }
}

fn demand(way: &str, demand: Demand) -> Span<'static> {
    let [asked, got, used] = [demand.requested, demand.assigned, demand.used].map(si);
    format!("  {way} requested {asked}, assigned {got}, used {used}").into()
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, model: &mut Model) {
    use crate::top::rates::Serving::{Mean, OnDemand};
    let page = usize::from(area.height.saturating_sub(1));
    model.fit(page);
    let columns = Columns::of(area.width);
    let mean = [model.link.forward, model.link.back]
        .iter()
        .any(|rate| matches!(rate, Mean(_) | OnDemand(_)));
    let place = model.place();
    let shown = model.rows.iter().enumerate().skip(model.top).take(page);
    let rows = shown.map(|(at, row)| {
        let flow = model.way.of(row);
        let cells = ratatui::widgets::Row::new(columns.cells(row, &flow, mean));
        let chosen = Some(at) == place;
        cells.style(if chosen {
            Style::new().add_modifier(Modifier::REVERSED)
        } else {
            Style::new()
        })
    });
    let heads = ratatui::widgets::Row::new(columns.heads(model.sort)).bold();
    let table = Table::new(rows, columns.widths()).header(heads).column_spacing(0);
    frame.render_widget(table, area);
    if model.rows.is_empty() && model.health.is_some() && area.height > 1 {
        let below = Rect { y: area.y + 1, height: 1, ..area };
        frame.render_widget(Paragraph::new("no client has sent or received yet").dim(), below);
    }
}

fn draw_charts(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let Some((row, history)) = model.chosen() else { return };
    let title = format!("{}, the last minute", cut(&row.client, usize::from(ADDRESS)));
    let mut title = vec![title.bold()];
    for (way, flow) in [("return", &row.back), ("forward", &row.forward)] {
        title.extend(flow.demand.map(|it| demand(way, it)));
    }
    let [head, charts] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    frame.render_widget(Paragraph::new(Line::from(title)), head);
    let places: [Rect; 4] = Layout::vertical([Constraint::Fill(1); 4]).areas(charts);
    let both = row.both();
    let now_ns = model.health.as_ref().map_or(0, |health| health.time_ns);
    for (series, place) in Series::ALL.into_iter().zip(places) {
        let (name, now, unit, limit, color) = match series {
            Series::Forward => {
                ("forward", row.forward.rate_bps, "b/s", model.link.forward.bps(), Color::Green)
            }
            Series::Return => {
                ("return", row.back.rate_bps, "b/s", model.link.back.bps(), Color::Cyan)
            }
            Series::Queue => ("queue", Some(both.queue_bytes as f64), "B", None, Color::Yellow),
            Series::Drops => ("drops", both.dropping(), "/s", None, Color::Red),
        };
        let figure = |name: &str, value: String| Line::from(format!("{name:<8}{value:>5}{unit}"));
        let [figures, chart] =
            Layout::horizontal([Constraint::Length(LABEL), Constraint::Fill(1)]).areas(place);
        let data = history.map(|it| it.chart(series, now_ns, usize::from(chart.width)));
        let data = data.unwrap_or_default();
        let most = data.iter().copied().max().unwrap_or(0);
        // The full height of a rate chart is the configured rate: the bar shows utilisation.
        let top = limit.map_or(most, |limit| most.max(limit as u64));
        let mut lines = vec![figure(name, now.map_or(UNKNOWN.into(), si))];
        if let (Some(rate), Some(limit)) = (now, limit) {
            lines.push(Line::from(format!("{:>7.0} % in use", rate / limit * 100.0)).dim());
        }
        lines.push(figure("top", si(top as f64)).dim());
        frame.render_widget(Paragraph::new(lines), figures);
        frame.render_widget(Sparkline::default().data(&data).max(top.max(1)).style(color), chart);
    }
}

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let width = area.width.min(44);
    let height = area.height.min(HELP.len() as u16 + 3);
    let place = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    let mut lines: Vec<Line<'_>> = HELP.iter().map(|line| Line::from(*line)).collect();
    lines.push(Line::from("that are too short or too long"));
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" keys ")), place);
}

#[cfg(test)]
mod tests;
