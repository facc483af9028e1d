//! State of the screen and the effect of keys. Pure: keys and answers go in, requests come out.

use crossterm::event::KeyCode;
use job_status::{Replica, Status};
use redrt_wire::tree::Question;

/// Request of a key.
#[derive(PartialEq, Eq, Debug)]
pub enum Action {
    /// Leave the program.
    Quit,
    /// Ask the job.
    Ask {
        question: Question,
        /// The request in words, for messages.
        what: String,
    },
}

/// A request that waits for confirmation.
#[derive(Debug)]
pub struct Pending {
    /// The request in words.
    pub what: String,
    question: Question,
}

/// State of the screen; see the module.
#[derive(Default, Debug)]
pub struct Screen {
    /// The job's last status; `None` until the first arrives.
    pub status: Option<Status>,
    /// Row of the selected rank, and index of the selected replica in it.
    pub selected: (usize, usize),
    /// Waits for the key `y`; any other key drops it.
    pub pending: Option<Pending>,
    /// Outcome of the last request, or the reason why the job is silent.
    pub message: String,
}

impl Screen {
    /// Takes a new status.
    pub fn update(&mut self, status: Status) {
        self.status = Some(status);
        self.keep_selection();
    }

    /// Takes the outcome of a request.
    pub fn answered(&mut self, what: &str, outcome: anyhow::Result<()>) {
        self.message = match outcome {
            Ok(()) => format!("{what}: done"),
            Err(why) => format!("{what}: {why:#}"),
        };
    }

    fn keep_selection(&mut self) {
        let Some(status) = &self.status else { return };
        let (row, column) = self.selected;
        let row = row.min(status.ranks.len().saturating_sub(1));
        let count = status.ranks.get(row).map_or(0, |rank| rank.replicas.len());
        self.selected = (row, column.min(count.saturating_sub(1)));
    }

    /// The selected replica, to which keys apply.
    pub fn replica(&self) -> Option<&Replica> {
        let (row, column) = self.selected;
        self.status.as_ref()?.ranks.get(row)?.replicas.get(column)
    }

    /// Handles a key.
    pub fn press(&mut self, key: KeyCode) -> Option<Action> {
        if let Some(Pending { what, question }) = self.pending.take() {
            return (key == KeyCode::Char('y')).then_some(Action::Ask { question, what });
        }
        let (row, column) = self.selected;
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return Some(Action::Quit),
            KeyCode::Up => self.selected.0 = row.saturating_sub(1),
            KeyCode::Down => self.selected.0 = row + 1,
            KeyCode::PageUp => self.selected.0 = row.saturating_sub(20),
            KeyCode::PageDown => self.selected.0 = row + 20,
            KeyCode::Home => self.selected.0 = 0,
            KeyCode::End => self.selected.0 = usize::MAX,
            KeyCode::Left => self.selected.1 = column.saturating_sub(1),
            KeyCode::Right => self.selected.1 = column + 1,
            KeyCode::Char('c') => {
                let question = Question::Checkpoint { stop: false };
                return Some(Action::Ask { question, what: "checkpoint".into() });
            }
            KeyCode::Char(letter @ ('k' | 'm' | 'd')) => self.pending = self.request(letter),
            _ => {}
        }
        self.keep_selection();
        None
    }

    fn request(&self, letter: char) -> Option<Pending> {
        let Replica { replica, host, .. } = self.replica()?;
        let id = replica.parse().ok()?;
        let (what, question) = match letter {
            'k' => (format!("kill {replica}"), Question::Kill(id)),
            'm' => (format!("move {replica} away from {host}"), Question::Migrate { replica: id, to: None }),
            _ => (format!("free host {host}"), Question::Drain(host.clone())),
        };
        Some(Pending { what, question })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::status;
    use super::*;

    fn screen() -> Screen {
        let mut screen = Screen::default();
        screen.update(status());
        screen
    }

    #[test]
    fn the_selection_stays_on_a_replica_that_is_there() {
        let mut screen = screen();
        for key in [KeyCode::End, KeyCode::Right, KeyCode::Right, KeyCode::Right] {
            assert_eq!(screen.press(key), None);
        }
        assert_eq!(screen.replica().unwrap().replica, "1.1");
        let mut fewer = status();
        fewer.ranks.truncate(1);
        fewer.ranks[0].replicas.truncate(1);
        screen.update(fewer);
        assert_eq!(screen.replica().unwrap().replica, "0.0");
        let mut none = status();
        none.ranks.clear();
        screen.update(none);
        assert!(screen.replica().is_none() && screen.press(KeyCode::Char('k')).is_none() && screen.pending.is_none());
    }

    #[test]
    fn what_ends_something_is_asked_twice() {
        let mut screen = screen();
        screen.press(KeyCode::Down);
        assert_eq!(screen.press(KeyCode::Char('k')), None);
        assert_eq!(screen.pending.as_ref().unwrap().what, "kill 1.0");
        assert_eq!(screen.press(KeyCode::Char('n')), None);
        assert!(screen.pending.is_none());
        screen.press(KeyCode::Char('d'));
        let asked = screen.press(KeyCode::Char('y'));
        assert_eq!(asked, Some(Action::Ask { question: Question::Drain("h1".into()), what: "free host h1".into() }));
        assert!(matches!(screen.press(KeyCode::Char('c')), Some(Action::Ask { .. })));
        screen.answered("checkpoint", Err(anyhow::anyhow!("none are taken")));
        assert_eq!(screen.message, "checkpoint: none are taken");
        assert_eq!(screen.press(KeyCode::Char('q')), Some(Action::Quit));
    }
}
