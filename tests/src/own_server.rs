//! A MongoDB server of a test's own, for tests that stop it or make it fail: fail points hit all clients of a server.

use std::{
    env,
    net::{Ipv4Addr, TcpListener},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use bson::{Bson, Document, doc};
use mongodb::{Client, options::ClientOptions};
use tempfile::TempDir;

/// How long a server may take to accept writes.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server on a port of its own. Dropped, it is killed and its folder removed.
pub struct OwnServer {
    child: Option<Child>,
    port: u16,
    folder: TempDir,
}

impl OwnServer {
    /// Starts one and waits until it accepts writes.
    ///
    /// # Panics
    /// If there is no binary, or it does not get ready.
    pub async fn start() -> Self {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|listener| listener.local_addr())
            .expect("a free port")
            .port();
        let folder = TempDir::new().expect("a temporary folder");
        let mut server = Self {
            child: None,
            port,
            folder,
        };
        server.start_again().await;
        server
    }

    /// Its host and port.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its URI, without a database.
    pub fn uri(&self) -> String {
        format!(
            "mongodb://127.0.0.1:{}/?directConnection=true&serverSelectionTimeoutMS=300&heartbeatFrequencyMS=500",
            self.port
        )
    }

    /// Kills it. What it has acknowledged stays.
    ///
    /// # Panics
    /// If it cannot be killed.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("the server is killed");
            child.wait().expect("the server has ended");
        }
    }

    /// Starts it again on the same port and folder.
    ///
    /// # Panics
    /// If it does not get ready.
    pub async fn start_again(&mut self) {
        let binary = binary();
        let mongod = binary
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("mongod"));
        let mut command = Command::new(&binary);
        command
            .env_remove("RUST_LOG")
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .args(["--port", &self.port.to_string()]);
        if mongod {
            command
                .args(["--replSet", "milestone", "--bind_ip", "127.0.0.1"])
                .args(["--setParameter", "enableTestCommands=1", "--dbpath"])
                .arg(self.folder.path());
        } else {
            command
                .args(["--host", "127.0.0.1", "--enable-test-commands"])
                .args(["--sync-on-commit", "--storage-path"])
                .arg(self.folder.path());
        }
        self.child = Some(command.spawn().expect("the server is started"));
        self.ready(mongod).await;
    }

    async fn ready(&self, mongod: bool) {
        let client = self.client().await;
        let admin = client.database("admin");
        let began = Instant::now();
        loop {
            if let Ok(hello) = admin.run_command(doc! { "hello": 1 }).await {
                if hello.get_bool("isWritablePrimary").unwrap_or(false) {
                    return;
                }
                if mongod {
                    let host = format!("127.0.0.1:{}", self.port);
                    let config =
                        doc! { "_id": "milestone", "members": [{ "_id": 0, "host": host }] };
                    // Refused where it is one already.
                    let _ = admin.run_command(doc! { "replSetInitiate": config }).await;
                }
            }
            assert!(began.elapsed() < PATIENCE, "the server does not get ready");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// A client that no failure is for.
    ///
    /// # Panics
    /// Never, since the URI is good.
    pub async fn client(&self) -> Client {
        let options = ClientOptions::parse(self.uri()).await.expect("a good URI");
        Client::with_options(options).expect("good options")
    }

    /// Makes commands of the clients fail whose `appName` is this one, as the fail point `failCommand` does with such `data`.
    ///
    /// # Panics
    /// If the server refuses.
    pub async fn fail(&self, app: &str, mode: impl Into<Bson>, mut data: Document) {
        data.insert("appName", app);
        let command =
            doc! { "configureFailPoint": "failCommand", "mode": mode.into(), "data": data };
        let admin = self.client().await.database("admin");
        admin
            .run_command(command)
            .await
            .expect("the server has fail points");
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn binary() -> PathBuf {
    let named = env::var_os("MILESTONE_TEST_SERVER_BIN").filter(|path| !path.is_empty());
    named.map_or_else(in_cache, PathBuf::from)
}

fn in_cache() -> PathBuf {
    let home = env::var_os("HOME").expect("HOME is set");
    let path = PathBuf::from(home)
        .join(".cache/milestone/servers/secantus-mdb-0.5.3-beta.196/bin/secantusd-rs");
    assert!(
        path.is_file(),
        "there is no server at {}: run `cargo xtask test`, or name one by MILESTONE_TEST_SERVER_BIN",
        path.display()
    );
    path
}
