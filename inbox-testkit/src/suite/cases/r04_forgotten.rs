//! R4: whatever undoes the transaction forgets the registration, and the effect with it.

use inbox_core::{Registration, Waits};

use super::{assert_duplicate, cases, deliver, hold, message, process, until};
use crate::suite::stage::{HandlerError, Script, Step};

cases! {
    /// A rolled back registration is forgotten (B73): the redelivery is new.
    every_level() fn r04_rollback_forgets(stage) {
        let inbox = stage.inbox("billing");
        let mut tx = hold(&*inbox, &message("m-1")).await;
        tx.effect("m-1").await.expect("effect");
        tx.rollback().await.expect("rollback");
        assert_eq!(stage.effects("m-1").await, 0);
        assert_eq!(deliver(&*inbox, &message("m-1")).await, Registration::New);
    }

    /// A dropped transaction is rolled back.
    every_level() fn r04_drop_forgets(stage) {
        let inbox = stage.inbox("billing");
        let mut tx = hold(&*inbox, &message("m-1")).await;
        tx.effect("m-1").await.expect("effect");
        drop(tx);
        assert_eq!(stage.effects("m-1").await, 0);
        assert_eq!(deliver(&*inbox, &message("m-1")).await, Registration::New);
    }

    /// A failing handler leaves nothing (B73); the redelivery runs it again.
    once() fn r04_failed_handler_forgets(stage) {
        let inbox = stage.inbox("billing");
        let failing = Script::new(|_| Step::Fail);
        let outcome = inbox.process(&message("m-1"), &failing).await;
        assert!(matches!(outcome, Err(HandlerError::Failed)), "{outcome:?}");
        assert_eq!((failing.calls(), stage.effects("m-1").await), (1, 0));
        assert!(process(&*inbox, &message("m-1")).await);
        assert_eq!(stage.effects("m-1").await, 1);
    }

    /// A savepoint that is rolled back forgets what was registered in it (B33).
    every_level(Savepoints, Sql) fn r04_rollback_to_a_savepoint_forgets(stage) {
        let inbox = stage.inbox("billing");
        let mut tx = inbox.begin().await.expect("begin");
        tx.execute("SAVEPOINT before_it").await.expect("savepoint");
        // By reference: an undone registration of the guard would rightly refuse the commit.
        assert_eq!(tx.register_by_reference(&message("m-1")).await.expect("register"), Registration::New);
        tx.effect("m-1").await.expect("effect");
        tx.execute("ROLLBACK TO SAVEPOINT before_it").await.expect("rollback to");
        tx.effect("other").await.expect("effect");
        tx.commit().await.expect("commit");
        assert_eq!((stage.effects("m-1").await, stage.effects("other").await), (0, 1));
        assert_eq!(deliver(&*inbox, &message("m-1")).await, Registration::New);
    }

    /// What was undone by a savepoint can be registered again in the same transaction.
    every_level(Savepoints, Sql) fn r04_undone_by_a_savepoint_is_new_again_at_once(stage) {
        let inbox = stage.inbox("billing");
        let mut tx = inbox.begin().await.expect("begin");
        tx.execute("SAVEPOINT before_it").await.expect("savepoint");
        assert_eq!(tx.register_by_reference(&message("m-1")).await.expect("register"), Registration::New);
        tx.execute("ROLLBACK TO SAVEPOINT before_it").await.expect("rollback to");
        assert_eq!(tx.register(&message("m-1")).await.expect("register"), Registration::New);
        tx.commit().await.expect("commit");
        assert_duplicate(&deliver(&*inbox, &message("m-1")).await);
    }

    /// A session that is killed loses its registration and its effect together.
    every_level(Kill) fn r04_killed_session_forgets(stage) {
        let inbox = stage.inbox("billing");
        let mut tx = hold(&*inbox, &message("m-1")).await;
        tx.effect("m-1").await.expect("effect");
        let session = tx.id().await;
        stage.kill(&session).await;
        drop(tx);
        assert_eq!(stage.effects("m-1").await, 0);
        assert!(process(&*inbox, &message("m-1")).await);
        assert_eq!(stage.effects("m-1").await, 1);
    }

    /// A transaction that is open is not registered for anyone else yet: nothing is found.
    every_level() fn r04_open_registration_is_not_found(stage) {
        let inbox = stage.inbox("billing");
        let tx = hold(&*inbox, &message("m-1")).await;
        if stage.capabilities().waits == Waits::WhenRegistering {
            assert_eq!(inbox.find(message("m-1").id()).await.expect("find"), None);
        }
        tx.rollback().await.expect("rollback");
        until("nothing is found", async || inbox.find(message("m-1").id()).await.expect("find").is_none()).await;
    }
}
