//! The screen: a line for each rank with its replicas, the hosts beside it, and the work under way below.

use super::screen::Screen;
use job_report::share_text;
use job_status::{Clone, Progress, Rank, Replica, Status};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph};

const KEYS: &str = "q quit   arrows select   k kill   m move   d free its host   c checkpoint";
/// Width of a replica, in columns.
const REPLICA_WIDTH: usize = 24;
/// Width of the list of hosts, in columns.
const HOSTS_WIDTH: u16 = 34;
/// A terminal with fewer columns shows the hosts below the ranks.
const WIDE: u16 = 100;

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Sign and colour of a state. The sign is enough without colours.
fn mark(state: &str) -> (char, Color) {
    match state {
        "running" | "alive" => ('●', Color::Green),
        "lost" | "retired" | "dead" => ('✗', Color::Red),
        "leaving" => ('→', Color::Yellow),
        "exited" | "finalizing" | "free" => ('○', Color::DarkGray),
        _ => ('◌', Color::Yellow),
    }
}

fn styled(text: String, colour: Color, is_coloured: bool) -> Span<'static> {
    let style = if is_coloured { Style::new().fg(colour) } else { Style::new() };
    Span::styled(text, style)
}

/// Draws the screen. Without colours, the signs carry the same information.
pub fn draw(frame: &mut Frame<'_>, screen: &Screen, is_coloured: bool) {
    let [head, middle, below, message, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(below_height(screen)),
        Constraint::Length(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let Some(status) = &screen.status else {
        frame.render_widget(Paragraph::new("the job has not answered yet"), head);
        frame.render_widget(Paragraph::new(screen.message.as_str()), message);
        frame.render_widget(Paragraph::new(KEYS), keys);
        return;
    };
    frame.render_widget(Paragraph::new(headline(status)).style(Style::new().add_modifier(Modifier::BOLD)), head);
    let is_wide = middle.width >= WIDE;
    let hosts_height = u16::try_from(status.hosts.len()).unwrap_or(u16::MAX).saturating_add(2).min(middle.height / 3);
    let [ranks, hosts] = match is_wide {
        true => Layout::horizontal([Constraint::Min(20), Constraint::Length(HOSTS_WIDTH)]).areas(middle),
        false => Layout::vertical([Constraint::Min(3), Constraint::Length(hosts_height)]).areas(middle),
    };
    draw_ranks(frame, ranks, screen, status, is_coloured);
    let lines: Vec<_> = status
        .hosts
        .iter()
        .map(|host| {
            let (sign, colour) = mark(&host.state);
            let text = format!(" {:<18} {:>4} {}", host.host, host.processes, host.state);
            Line::from(vec![styled(sign.to_string(), colour, is_coloured), text.into()])
        })
        .collect();
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" hosts, processes ")), hosts);
    frame.render_widget(Paragraph::new(under_way(status)).block(Block::bordered().title(" under way ")), below);
    let asked = screen.pending.as_ref().map(|pending| format!("{}? y/n", pending.what));
    let detail = || screen.replica().map(detail).unwrap_or_default();
    let text = asked.or_else(|| Some(screen.message.clone()).filter(|text| !text.is_empty())).unwrap_or_else(detail);
    frame.render_widget(Paragraph::new(text), message);
    frame.render_widget(Paragraph::new(KEYS).style(Style::new().add_modifier(Modifier::DIM)), keys);
}

fn headline(status: &Status) -> String {
    let mut line = format!("job {}  {}  {:.0} s  view {}", status.job, status.state, status.elapsed_s, status.view);
    if let Some(share) = status.redundancy.protected_share {
        line += &format!("  protected {}", share_text(share));
    }
    if let Some(newest) = status.checkpoint.newest {
        line += &format!("  checkpoint {newest}");
    }
    line
}

fn detail(replica: &Replica) -> String {
    format!(
        "{} on {}: {}, {:.0} MiB, {:.1} MiB kept for others, waited {:.0} ms at most{}",
        replica.replica,
        replica.host,
        replica.state,
        mebibytes(replica.memory_bytes),
        mebibytes(replica.retention_bytes),
        replica.stall_ms_max,
        if replica.waits_s > 0.0 { format!(", waits for {:.0} s now", replica.waits_s) } else { String::new() }
    )
}

fn draw_ranks(frame: &mut Frame<'_>, area: Rect, screen: &Screen, status: &Status, is_coloured: bool) {
    let height = usize::from(area.height.saturating_sub(2)).max(1);
    let (row, column) = screen.selected;
    // The rows scroll so that the selected one is visible.
    let first = row.saturating_sub(height - 1);
    let shown = status.ranks.iter().enumerate().skip(first).take(height);
    let holding_up = status.holding_up();
    let line = |(at, rank): (usize, &Rank)| {
        let holds = holding_up.binary_search(&rank.rank).is_ok();
        rank_line(rank, holds, (at == row).then_some(column), is_coloured)
    };
    let lines: Vec<_> = shown.map(line).collect();
    let short_count = status.ranks.iter().filter(|rank| rank.live < rank.degree).count();
    let mut title = format!(" {} ranks", status.ranks.len());
    if short_count > 0 {
        title += &format!(", {short_count} short of replicas (!)");
    }
    if !holding_up.is_empty() {
        title += &format!(", others wait for {} (*)", holding_up.len());
    }
    title.push(' ');
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(title)), area);
}

fn rank_line(rank: &Rank, holds: bool, selected: Option<usize>, is_coloured: bool) -> Line<'static> {
    let short = if rank.live < rank.degree { '!' } else { ' ' };
    let mut spans = vec![
        styled(format!("{short}{:>6}", rank.rank), Color::Red, is_coloured && short == '!'),
        styled(if holds { "*" } else { " " }.to_owned(), Color::Yellow, is_coloured),
    ];
    for (at, replica) in rank.replicas.iter().enumerate() {
        let (sign, colour) = mark(&replica.state);
        let mut span = styled(sign.to_string(), colour, is_coloured);
        let text = format!(" {} {} {}", replica.replica, replica.host, replica.state);
        let mut text = Span::raw(format!("{text:<REPLICA_WIDTH$.REPLICA_WIDTH$}"));
        if selected == Some(at) {
            let reversed = |span: Span<'static>| span.patch_style(Style::new().add_modifier(Modifier::REVERSED));
            (span, text) = (reversed(span), reversed(text));
        }
        spans.extend([span, text]);
    }
    Line::from(spans)
}

fn below_height(screen: &Screen) -> u16 {
    let count = screen.status.as_ref().map_or(0, |status| under_way(status).len());
    2 + u16::try_from(count.clamp(1, 6)).unwrap_or(6)
}

fn under_way(status: &Status) -> Vec<Line<'static>> {
    let copies = status.clones.iter().map(copy_line);
    let moves = status.moves.iter().map(|one| match &one.to {
        Some(to) => format!("{} moves to {to}", one.replica),
        None => format!("{} moves", one.replica),
    });
    let checkpoint = status.checkpoint.under_way.map(|generation| {
        let progress = status.checkpoint.progress.as_ref().map(progress_text);
        format!("checkpoint {generation} is being written{}", progress.unwrap_or_default())
    });
    copies.chain(moves).chain(checkpoint).map(Line::from).collect()
}

fn copy_line(clone: &Clone) -> String {
    let Clone { replica, source, host, progress } = clone;
    let begin = format!("{source} is copied to {host} as {replica}");
    begin + &progress.as_ref().map(progress_text).unwrap_or_default()
}

fn progress_text(progress: &Progress) -> String {
    let share = progress.done_bytes as f64 / progress.total_bytes.max(1) as f64;
    let filled = (share.clamp(0.0, 1.0) * 20.0) as usize;
    let bar: String = (0..20).map(|at| if at < filled { '█' } else { '░' }).collect();
    let (done, total) = (mebibytes(progress.done_bytes), mebibytes(progress.total_bytes));
    let rate = progress.bytes_per_second / f64::from(1 << 20);
    format!("  {bar} {done:.0} of {total:.0} MiB, {rate:.0} MiB/s")
}

#[cfg(test)]
mod tests {
    use super::super::tests::status;
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn drawn(screen: &Screen, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, screen, false)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn ranks_hosts_and_what_is_under_way_are_seen_on_any_terminal() {
        let mut screen = Screen::default();
        assert!(drawn(&screen, 80, 24).contains("has not answered yet"));
        screen.update(status());
        for (width, height) in [(140, 30), (80, 24)] {
            let picture = drawn(&screen, width, height);
            for part in [
                "job 00ab  running  12 s  view 3  protected 82.5 %  checkpoint 4",
                "2 ranks, 1 short of replicas (!)",
                "!     1 ",
                "● 0.0 h1 running",
                "✗ 1.1 h2 lost",
                "✗ h2",
                "1.0 is copied to h3 as 1.1",
                "512 of 1024 MiB",
                "checkpoint 5 is being written",
                "q quit",
            ] {
                assert!(picture.contains(part), "{part}: {picture}");
            }
        }
        // One replica has waited for long, and the other does not wait.
        let mut held = status();
        held.ranks[0].replicas[1].waits_s = 7.0;
        screen.update(held);
        let picture = drawn(&screen, 140, 30);
        assert!(picture.contains("others wait for 1 (*)") && picture.contains("!     1*"), "{picture}");
        // A terminal too small for the screen is no failure.
        drawn(&screen, 5, 2);
    }

    #[test]
    fn the_selected_rank_is_seen_among_thousands() {
        let mut many = status();
        let rank = |number| Rank { rank: number, degree: 1, live: 1, replicas: Vec::new() };
        many.ranks = (0..5000).map(rank).collect();
        let mut screen = Screen { selected: (4321, 0), ..Screen::default() };
        screen.update(many);
        assert!(drawn(&screen, 80, 24).contains("4321"));
    }
}
