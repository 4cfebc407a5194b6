//! R15 and R16: the caller's session stays as it was; a wrong table is refused.

use inbox_core::{ErrorKind, Registration};

use super::{assert_duplicate, cases, deliver, handle, message};

cases! {
    /// Creating the schema again changes nothing and loses nothing.
    once(Schema) fn r15_creating_the_schema_is_idempotent(stage) {
        let inbox = stage.inbox("billing");
        handle(&*inbox, &message("m-1")).await;
        stage.create_schema().await.expect("create the schema again");
        assert_duplicate(&deliver(&*inbox, &message("m-1")).await);
        stage.verify().await.expect("verify");
    }

    /// Many processes may create the schema at once.
    once(Schema, Sql) fn r15_creating_the_schema_at_once_is_safe(stage) {
        stage.execute(&format!("DROP TABLE {}", stage.table())).await;
        let create = async || stage.create_schema().await.map_err(|error| error.to_string());
        let results: [_; 6] =
            tokio::join!(create(), create(), create(), create(), create(), create()).into();
        assert_eq!(results, [const { Ok(()) }; 6]);
        handle(&*stage.inbox("billing"), &message("m-1")).await;
    }

    /// A temporary table of the same name does not take the registration: names are qualified.
    every_level(ShadowTable, Sql) fn r15_temporary_table_does_not_take_the_registration(stage) {
        let inbox = stage.inbox("billing");
        let mut tx = inbox.begin().await.expect("begin");
        tx.execute(stage.shadow_table()).await.expect("the temporary table is created");
        assert_eq!(tx.register(&message("m-1")).await.expect("register"), Registration::New);
        assert_eq!(tx.register_batch(&super::messages(&["m-2"])).await.expect("register"), [Registration::New]);
        tx.commit().await.expect("commit");
        for text in ["m-1", "m-2"] {
            assert!(inbox.find(message(text).id()).await.expect("find").is_some(), "{text}");
            assert_duplicate(&deliver(&*stage.inbox("billing"), &message(text)).await);
        }
    }

    /// The schema that the store creates is accepted.
    once(Schema) fn r16_own_schema_is_accepted(stage) {
        stage.verify().await.expect("verify");
    }

    /// A missing table is refused.
    once(Schema, Sql) fn r16_missing_table_is_refused(stage) {
        stage.execute(&format!("DROP TABLE {}", stage.table())).await;
        let error = stage.verify().await.expect_err("the table is missing");
        assert_eq!(error.kind(), ErrorKind::Schema, "{error}");
    }
}
