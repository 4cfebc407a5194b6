//! What the guard adds to the deferred inbox: receiving and completing with a proof at the commit.

use crate::{
    Complete, Deferred, Envelope, Error, GuardedTx, KeepMessages, KeepRequest, Lease, Received, Registration,
    Transactional,
};

impl<S, Tx: Send> GuardedTx<'_, S, Tx>
where
    S: Transactional<Tx> + KeepMessages<Tx>,
{
    /// As [`Inbox::receive_in`](crate::Inbox::receive_in), in this transaction: its commit proves the
    /// registration.
    ///
    /// # Errors
    ///
    /// As [`Inbox::receive_in`](crate::Inbox::receive_in). After an error other than `InvalidMessage` this
    /// transaction can only be rolled back.
    pub async fn receive(&mut self, envelope: &Envelope) -> Result<Received, Error> {
        self.inbox.check_envelope(envelope)?;
        match self.register_if_new(envelope.message()).await? {
            Registration::New => {
                let envelopes = [envelope];
                let request = KeepRequest::new(self.inbox.consumer(), &envelopes);
                self.enter(|| request.doing())?;
                let kept = self.inbox.store().keep(&mut self.tx, &request).await;
                self.settle(kept)?;
                Ok(Received::Kept)
            }
            Registration::Duplicate(original) => Ok(Received::Duplicate(original)),
            Registration::Mismatch(original) => {
                Err(original.mismatch(KeepRequest::new(self.inbox.consumer(), &[envelope]).doing()))
            }
        }
    }
}

impl<S: Deferred> GuardedTx<'_, S, S::Tx> {
    /// Marks messages as done in this transaction; its commit proves that (R12). Answers by position
    /// whether the lease still held.
    ///
    /// Call it before the effect is written: where a lease was lost, write no effect of that message.
    ///
    /// # Errors
    ///
    /// As [`Deferred::complete`]. After an error this transaction can only be rolled back.
    pub async fn complete(&mut self, leases: &[Lease]) -> Result<Vec<bool>, Error> {
        let request = Complete::new(self.inbox.consumer(), leases);
        self.enter(|| request.doing())?;
        let held = self.inbox.store().complete(&mut self.tx, &request).await;
        let held = self.settle(held)?;
        let completed = leases.iter().zip(&held).filter(|(_, held)| **held).map(|(lease, _)| *lease);
        self.completed.extend(completed);
        Ok(held)
    }
}
