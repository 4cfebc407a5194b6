//! [`BatchPlan`]: sorts and de-duplicates a batch for one set-based statement, and answers by position.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::{
    Deadline, Error, ErrorKind, InboxStore, Message, Original, Register, RegisterBatch, Registration,
};

/// The distinct ids of a batch in byte order, each with the message that came first, and what a store
/// has found of them so far.
///
/// Byte order is the same in every process, so overlapping batches lock their keys in one order and
/// do not deadlock (R10).
#[derive(Debug)]
pub struct BatchPlan<'a> {
    messages: &'a [Message],
    distinct: Vec<&'a Message>,
    repeated: HashSet<&'a str>,
    new: HashSet<String>,
    originals: HashMap<String, Original>,
}

impl<'a> BatchPlan<'a> {
    /// Plans a batch.
    pub fn new(messages: &'a [Message]) -> Self {
        let mut distinct: Vec<&Message> = messages.iter().collect();
        // The sort is stable, so of equal ids the one that came first stays first.
        distinct.sort_by(|a, b| a.id().cmp(b.id()));
        let mut repeated = HashSet::new();
        distinct.dedup_by(|later, earlier| {
            let again = later.id() == earlier.id();
            if again {
                repeated.insert(later.id().as_str());
            }
            again
        });
        Self { messages, distinct, repeated, new: HashSet::new(), originals: HashMap::new() }
    }

    /// The distinct messages in the order in which they must be registered.
    pub fn distinct(&self) -> &[&'a Message] {
        &self.distinct
    }

    /// Notes an id that was inserted.
    pub fn found_new(&mut self, id: impl Into<String>) {
        self.new.insert(id.into());
    }

    /// Notes the original of an id, also of a new one that is repeated.
    pub fn found_original(&mut self, id: impl Into<String>, original: Original) {
        self.originals.insert(id.into(), original);
    }

    /// Whether the message was neither inserted nor found yet.
    pub fn is_open(&self, message: &Message) -> bool {
        let id = message.id().as_str();
        !self.new.contains(id) && !self.originals.contains_key(id)
    }

    /// Whether the message's original must still be read: it was not inserted, or its id stands in the
    /// batch again, and a repeat is a duplicate of the row just inserted (R3).
    pub fn needs_original(&self, message: &Message) -> bool {
        let id = message.id().as_str();
        !self.originals.contains_key(id) && (!self.new.contains(id) || self.repeated.contains(id))
    }

    /// The answers by position, as single calls one after the other would give them.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unconfirmed`] for an id that needs an original and has none (R8).
    pub fn answer(&self, doing: &str) -> Result<Vec<Registration>, Error> {
        let mut answered = HashSet::new();
        self.messages
            .iter()
            .map(|message| {
                let id = message.id().as_str();
                let first_here = !self.repeated.contains(id) || answered.insert(id);
                if first_here && self.new.contains(id) {
                    return Ok(Registration::New);
                }
                match self.originals.get(id) {
                    Some(original) => Ok(original.clone().compare(message)),
                    None => {
                        Err(Error::new(ErrorKind::Unconfirmed, doing).with_detail(format!("message {id:?}")))
                    }
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

    let deadline = Deadline::after(request.wait.unwrap_or(default_wait));
    let mut answers = vec![Registration::New; request.messages.len()];
    let mut guard = request.guard;
    for position in order {
        let single =
            Register::new(request.consumer, &request.messages[position]).wait(deadline.left()).guard(guard);
        answers[position] = store.register_if_new(tx, &single).await?;
        guard = guard.after();
    }
    Ok(answers)
}
