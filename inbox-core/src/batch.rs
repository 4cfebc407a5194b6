//! [`BatchPlan`]: sorts and de-duplicates a batch for one set-based statement, and answers by position.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use crate::{Error, ErrorKind, Guard, InboxStore, Message, Original, Register, RegisterBatch, Registration};

/// The distinct ids of a batch in byte order, each with the message that came first.
///
/// Byte order is the same in every process, so overlapping batches lock their keys in one order and
/// do not deadlock (R10).
#[derive(Debug)]
pub struct BatchPlan<'a> {
    messages: &'a [Message],
    first: Vec<&'a Message>,
    repeats: bool,
}

impl<'a> BatchPlan<'a> {
    /// Plans a batch.
    pub fn new(messages: &'a [Message]) -> Self {
        let mut first: Vec<&Message> = messages.iter().collect();
        // The sort is stable, so of equal ids the one that came first stays first.
        first.sort_by(|a, b| a.id().cmp(b.id()));
        first.dedup_by(|later, earlier| later.id() == earlier.id());
        let repeats = first.len() < messages.len();
        Self { messages, first, repeats }
    }

    /// The distinct messages in the order in which they must be registered.
    pub fn distinct(&self) -> &[&'a Message] {
        &self.first
    }

    /// Whether some id stands in the batch more than once; then the originals of new ids are needed too.
    pub fn has_repeats(&self) -> bool {
        self.repeats
    }

    /// The answers by position, as single calls one after the other would give them.
    ///
    /// `new` holds the ids that were inserted; `originals` those of all other ids, and of new ids
    /// that are repeated in the batch.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unconfirmed`] for an id that needs an original and has none (R8).
    pub fn answer(
        &self,
        doing: &str,
        new: &HashSet<&str>,
        originals: &HashMap<String, Original>,
    ) -> Result<Vec<Registration>, Error> {
        let mut seen = HashSet::new();
        self.messages
            .iter()
            .map(|message| {
                let first_here = !self.repeats || seen.insert(message.id());
                if first_here && new.contains(message.id().as_str()) {
                    return Ok(Registration::New);
                }
                match originals.get(message.id().as_str()) {
                    Some(original) => Ok(original.clone().compare(message)),
                    None => Err(Error::new(ErrorKind::Unconfirmed, doing)
                        .with_detail(format!("message {:?}", message.id().as_str()))),
                }
            })
            .collect()
    }
}

/// A batch as single calls, in the order of [`BatchPlan`]: correct, but a statement per id.
///
/// `default_wait` is the store's own: the wait bounds the whole batch, so it must be known here (R6).
///
/// # Errors
///
/// As [`InboxStore::register_batch`].
pub async fn register_one_by_one<S, Tx>(
    store: &S,
    tx: &mut Tx,
    request: &RegisterBatch<'_>,
    default_wait: Duration,
) -> Result<Vec<Registration>, Error>
where
    S: InboxStore<Tx> + ?Sized,
    Tx: Send,
{
    let mut order: Vec<usize> = (0..request.messages.len()).collect();
    // Stable: of equal ids the one that came first is registered first.
    order.sort_by(|&a, &b| request.messages[a].id().cmp(request.messages[b].id()));

    // A wait too long for the clock is no bound.
    let wait = request.wait.unwrap_or(default_wait);
    let deadline = Instant::now().checked_add(wait);
    let mut answers = vec![Registration::New; request.messages.len()];
    let mut guard = request.guard;
    for position in order {
        let left = deadline.map_or(wait, |at| at.saturating_duration_since(Instant::now()));
        let single =
            Register::new(request.consumer, &request.messages[position]).wait(left).guard(guard);
        answers[position] = store.register_if_new(tx, &single).await?;
        if guard == Guard::Opens {
            guard = Guard::Stands;
        }
    }
    Ok(answers)
}
