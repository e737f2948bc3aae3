//! Requests over HTTP that create one job each: retries of failed builds. Each app has one
//! component.
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use app_config::{File, Tree};
use bytes::Bytes;
use futures::{StreamExt as _, stream};

use crate::api_client::ApiClient;

const FILES: [(&str, &str); 4] = [
    ("metadata.toml", "version = \"v2\"\ndisplay_name = \"Shop\"\n"),
    ("runner.toml", "runner_type = \"local\"\n"),
    (
        "inputs.toml",
        "[[group]]\nname = \"g\"\ndisplay_name = \"G\"\ndescription = \"G\"\n\
         [[input]]\nname = \"size\"\ndisplay_name = \"Size\"\ndescription = \"How large\"\n\
         group = \"g\"\ntype = \"number\"\nrequired = true\n",
    ),
    (
        "components/shop.toml",
        "name = \"shop\"\ntype = \"terraform_module\"\nterraform_version = \"1.11.4\"\n\
         [public_repo]\nrepo = \".\"\ndirectory = \"modules/shop\"\n\
         [vars]\nsize = \"{{ .nuon.inputs.inputs.size }}\"\n",
    ),
];

/// Latest build of each app.
pub struct Builds {
    client: ApiClient,
    newest: Vec<String>,
}

impl Builds {
    /// Creates this number of apps, each with a queued build.
    pub async fn sync(client: &ApiClient, apps: usize) -> Builds {
        let bundle = bundle();
        let newest = stream::iter(0..apps).map(|number| {
            let (client, bundle) = (client.clone(), bundle.clone());
            async move {
                let path = format!("/v1/apps/shop-{number}/sync");
                let request = client.send(&path, "application/zstd", bundle);
                let synced = client.wire().send(request).await.unwrap().ok().json();
                synced["builds"][0]["id"].as_str().unwrap().to_string()
            }
        });
        let newest = newest.buffered(16).collect().await;
        Builds { client: client.clone(), newest }
    }

    pub fn number(&self) -> usize {
        self.newest.len()
    }

    /// Retries the failed build of each app with this number of concurrent callers. Returns the
    /// time of each call.
    pub async fn retry(&mut self, callers: usize) -> Vec<Duration> {
        let all = Arc::new(std::mem::take(&mut self.newest));
        let next = Arc::new(AtomicUsize::new(0));
        let callers = (0..callers).map(|_| {
            let (client, all, next) = (self.client.clone(), Arc::clone(&all), Arc::clone(&next));
            tokio::spawn(async move {
                let (mut wire, mut done) = (client.wire(), Vec::new());
                while let Some(build) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let request = client.post(&format!("/v1/builds/{build}/retry"), None);
                    let began = Instant::now();
                    let response = wire.send(request).await.unwrap().ok();
                    let took = began.elapsed();
                    let build = response.json()["builds"][0]["id"].as_str().unwrap().to_string();
                    done.push((build, took));
                }
                done
            })
        });
        let done = futures::future::join_all(callers).await;
        let (newest, calls) = done.into_iter().flat_map(Result::unwrap).unzip();
        self.newest = newest;
        calls
    }
}

fn bundle() -> Bytes {
    let mut app = Tree::default();
    for (path, text) in FILES {
        app.insert(path, File { bytes: text.into(), executable: false }).unwrap();
    }
    let mut module = Tree::default();
    let main = File { bytes: b"variable \"size\" {}\n".to_vec(), executable: false };
    module.insert("main.tf", main).unwrap();
    let sources = BTreeMap::from([("shop".to_owned(), module)]);
    let bundle = Tree::bundle(&app, &sources, &[]).unwrap().encode().unwrap();
    zstd::encode_all(bundle.as_slice(), 1).unwrap().into()
}
