//! stub
use super::handler::Work;
use super::{Worker, WorkerReport};
use crate::{BoxFuture, Deferred, Error};

pub(super) enum Until<'a> {
    Told(BoxFuture<'a, ()>),
    Drained,
}

pub(super) async fn run<S: Deferred + Clone + 'static>(
    _worker: &Worker<S>,
    _batch: u32,
    _until: Until<'_>,
    _work: &dyn Work<S>,
) -> Result<WorkerReport, Error> {
    Ok(WorkerReport::default())
}
