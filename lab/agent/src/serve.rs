//! The conversation with an agent: lines of JSON in, lines of JSON out.

use crate::rules::Rules;
use crate::run::Prepared;
use crate::{machine, program};
use anabranch_lab::hosts::{Answer, Ask, MAX_ASK};
use std::io;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// How many bytes of an unintelligible line are quoted.
const EXCERPT: usize = 80;

/// Lines of bounded length.
#[derive(Debug)]
struct Lines<R> {
    input: R,
    line: Vec<u8>,
    /// Whether `line` has been returned to the caller.
    taken: bool,
}

impl<R: AsyncBufRead + Unpin> Lines<R> {
    fn new(input: R) -> Self {
        Self {
            input,
            line: Vec::new(),
            taken: false,
        }
    }

    /// The next line without its line end; `None` at the end of the input. It is cancel safe.
    async fn next(&mut self) -> io::Result<Option<&[u8]>> {
        if std::mem::take(&mut self.taken) {
            self.line.clear();
        }
        loop {
            let bytes = self.input.fill_buf().await?;
            if bytes.is_empty() {
                return Ok(None);
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let part = &bytes[..end.unwrap_or(bytes.len())];
            if self.line.len() + part.len() > MAX_ASK {
                let what = format!("a line of more than {MAX_ASK} bytes");
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
            self.line.extend_from_slice(part);
            let used = part.len() + usize::from(end.is_some());
            self.input.consume(used);
            if end.is_some() {
                self.taken = true;
                return Ok(Some(&self.line));
            }
        }
    }
}

/// How often all tasks must get a turn until what a run left behind is gone: the driver of its
/// endpoint is a task of its own, and closes removed sockets in its turn.
const TURNS: usize = 3;

/// A run in progress, or one that has reported but whose sockets linger.
#[derive(Debug)]
struct Running {
    stop: Option<oneshot::Sender<()>>,
    answers: mpsc::UnboundedReceiver<Answer>,
    done: bool,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Debug)]
enum State {
    Idle,
    Prepared(Box<Prepared>),
    Running(Running),
}

impl State {
    /// Ends what is left of the run before, so that its ports are free.
    async fn clear(&mut self) {
        match std::mem::replace(self, Self::Idle) {
            Self::Idle => return,
            Self::Prepared(prepared) => drop(prepared),
            Self::Running(mut running) => {
                running.task.abort();
                // It has ended, or was just aborted.
                let _ = (&mut running.task).await;
            }
        }
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
        }
    }
}

/// Answers until the input ends.
///
/// # Errors
/// The input or the output failed.
pub(crate) async fn serve(
    input: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
    rules: Rules,
) -> io::Result<()> {
    let mut lines = Lines::new(BufReader::new(input));
    let mut state = State::Idle;
    loop {
        let answer = tokio::select! {
            line = lines.next() => match line {
                Ok(Some([])) => None,
                Ok(Some(line)) => react(&mut state, line, &rules).await,
                Ok(None) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    // It is unknown where the next line begins.
                    return say(&mut output, &Answer::Failed(error.to_string())).await;
                }
                Err(error) => return Err(error),
            },
            answer = next_answer(&mut state) => Some(answer),
        };
        if let Some(answer) = answer {
            say(&mut output, &answer).await?;
        }
    }
}

async fn say(output: &mut (impl AsyncWrite + Unpin), answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer).map_err(io::Error::other)?;
    line.push(b'\n');
    output.write_all(&line).await?;
    output.flush().await
}

/// The next answer of a run; waits forever if there is no run.
async fn next_answer(state: &mut State) -> Answer {
    let State::Running(running) = state else {
        return std::future::pending().await;
    };
    if running.done {
        return std::future::pending().await;
    }
    let answer = running.answers.recv().await;
    match answer {
        // A third-party program becomes ready some time after its start.
        Some(answer @ (Answer::Progress(_) | Answer::Ready(_))) => answer,
        Some(answer) => {
            running.done = true;
            answer
        }
        None => {
            running.done = true;
            Answer::Failed("the run broke off: this is a mistake in the agent".to_owned())
        }
    }
}

/// Starts a task with a signal to stop and a channel for its answers.
fn running<F: Future<Output = ()> + Send + 'static>(
    work: impl FnOnce(oneshot::Receiver<()>, mpsc::UnboundedSender<Answer>) -> F,
) -> State {
    let (stop, stopped) = oneshot::channel();
    let (say, answers) = mpsc::unbounded_channel();
    State::Running(Running {
        stop: Some(stop),
        answers,
        done: false,
        task: tokio::spawn(work(stopped, say)),
    })
}

/// Carries out a request.
async fn react(state: &mut State, line: &[u8], rules: &Rules) -> Option<Answer> {
    let failed = |what: &str| Some(Answer::Failed(what.to_owned()));
    let ask: Ask = match serde_json::from_slice(line) {
        Ok(ask) => ask,
        Err(error) => {
            let excerpt = String::from_utf8_lossy(&line[..line.len().min(EXCERPT)]);
            let excerpt = excerpt.escape_debug();
            return Some(Answer::Failed(format!(
                "cannot understand `{excerpt}`: {error}"
            )));
        }
    };
    let is_busy = matches!(state, State::Running(running) if !running.done);
    if is_busy && matches!(ask, Ask::Hello | Ask::Prepare(_) | Ask::Serve(_)) {
        return failed("a run is under way: expected `stop` first");
    }
    match ask {
        Ask::Hello => Some(Answer::Machine(Box::new(rules.machine()))),
        Ask::Prepare(job) => {
            state.clear().await;
            machine::forget_peak();
            match Prepared::of(*job, rules) {
                Ok(prepared) => {
                    let ready = prepared.ready();
                    *state = State::Prepared(Box::new(prepared));
                    Some(Answer::Ready(ready))
                }
                Err(error) => Some(Answer::Failed(error)),
            }
        }
        Ask::Serve(serving) => {
            state.clear().await;
            match rules.program(*serving) {
                Ok((contender, terms)) => {
                    *state = running(|stopped, say| program::run(contender, terms, stopped, say));
                    None
                }
                Err(error) => Some(Answer::Failed(error)),
            }
        }
        Ask::Start(ready) => match std::mem::replace(state, State::Idle) {
            State::Prepared(prepared) => {
                *state = running(|stopped, say| prepared.run(ready, stopped, say));
                None
            }
            other => {
                *state = other;
                failed("nothing to start: expected `prepare` first")
            }
        },
        Ask::Stop => {
            match state {
                // Its report follows later.
                State::Running(running) if !running.done => drop(running.stop.take()),
                _ => state.clear().await,
            }
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    async fn converse(input: &[u8]) -> Vec<String> {
        let mut output = Vec::new();
        serve(input, &mut output, Rules::own(Arc::default()))
            .await
            .unwrap();
        let text = String::from_utf8(output).unwrap();
        text.lines().map(ToOwned::to_owned).collect()
    }

    #[tokio::test]
    async fn what_makes_no_sense_is_answered_and_the_next_line_is_heard() {
        let said = converse(b"rubbish\n\n{\"start\":null}\n\"stop\"\n").await;
        assert_eq!(said.len(), 2);
        assert!(said[0].contains("cannot understand `rubbish`"), "{said:?}");
        assert!(said[1].contains("expected `prepare` first"), "{said:?}");
    }

    #[tokio::test]
    async fn a_line_without_end_is_refused() {
        let long = vec![b'x'; MAX_ASK + 1];
        let said = converse(&long).await;
        assert!(said[0].contains("a line of more than"), "{said:?}");
    }
}
