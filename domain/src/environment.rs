//! Environment variables that only the customer's host may set.
//!
//! A vendor's manifest sets the environment variables of a job. Some variables make programs load
//! other code, run other programs or connect to other servers. A manifest with such variables could
//! bypass the customer's policy.

/// Variables that the server sets in manifests. Their values are ids and do not depend on the
/// config.
pub const SERVER_VARIABLES: [&str; 4] =
    ["NUON_APP_ID", "NUON_INSTALL_ID", "STEAD_APP_ID", "STEAD_INSTALL_ID"];

/// Prefixes of reserved names, each with the reason.
const PREFIXES: &[(&str, &str)] = &[
    ("LD_", LOADER),
    ("DYLD_", LOADER),
    ("BASH", SHELL),
    ("PERL5", INTERPRETER),
    ("LUA_", INTERPRETER),
    ("CORECLR_", INTERPRETER),
    ("TF_CLI_", TERRAFORM),
    ("TF_HTTP_", TERRAFORM),
    ("TF_LOG", TERRAFORM),
    ("TF_PLUGIN_", TERRAFORM),
    ("TF_REATTACH_", TERRAFORM),
    ("TF_TOKEN_", TERRAFORM),
    ("GIT_", GIT),
    ("HELM_DRIVER", CLUSTER),
    ("HELM_KUBE", CLUSTER),
    ("HELM_REGISTRY_", CLUSTER),
    ("HELM_REPOSITORY_", CLUSTER),
    ("KUBE_CONFIG_PATH", CLUSTER),
    ("STEAD_", STEAD),
];

/// Reserved names, each with the reason.
const NAMES: &[(&str, &str)] = &[
    ("GCONV_PATH", LOADER),
    ("GETCONF_DIR", LOADER),
    ("GLIBC_TUNABLES", LOADER),
    ("HOSTALIASES", LOADER),
    ("LOCALDOMAIN", LOADER),
    ("LOCPATH", LOADER),
    ("MALLOC_TRACE", LOADER),
    ("NIS_PATH", LOADER),
    ("NLSPATH", LOADER),
    ("RESOLV_HOST_CONF", LOADER),
    ("RES_OPTIONS", LOADER),
    ("TZDIR", LOADER),
    ("OPENSSL_CONF", LOADER),
    ("OPENSSL_ENGINES", LOADER),
    ("OPENSSL_MODULES", LOADER),
    ("PATH", PATHS),
    ("HOME", PATHS),
    ("TMPDIR", PATHS),
    ("XDG_CACHE_HOME", PATHS),
    ("XDG_CONFIG_DIRS", PATHS),
    ("XDG_CONFIG_HOME", PATHS),
    ("XDG_DATA_HOME", PATHS),
    ("CDPATH", SHELL),
    ("ENV", SHELL),
    ("GLOBIGNORE", SHELL),
    ("IFS", SHELL),
    ("PROMPT_COMMAND", SHELL),
    ("PS4", SHELL),
    ("SHELLOPTS", SHELL),
    ("CLASSPATH", INTERPRETER),
    ("DOTNET_ADDITIONAL_DEPS", INTERPRETER),
    ("DOTNET_STARTUP_HOOKS", INTERPRETER),
    ("GEM_HOME", INTERPRETER),
    ("GEM_PATH", INTERPRETER),
    ("JAVA_TOOL_OPTIONS", INTERPRETER),
    ("JDK_JAVA_OPTIONS", INTERPRETER),
    ("LESSCLOSE", INTERPRETER),
    ("LESSOPEN", INTERPRETER),
    ("NODE_OPTIONS", INTERPRETER),
    ("NODE_PATH", INTERPRETER),
    ("PHPRC", INTERPRETER),
    ("PHP_INI_SCAN_DIR", INTERPRETER),
    ("PERLLIB", INTERPRETER),
    ("PYTHONBREAKPOINT", INTERPRETER),
    ("PYTHONEXECUTABLE", INTERPRETER),
    ("PYTHONHOME", INTERPRETER),
    ("PYTHONINSPECT", INTERPRETER),
    ("PYTHONPATH", INTERPRETER),
    ("PYTHONPLATLIBDIR", INTERPRETER),
    ("PYTHONPYCACHEPREFIX", INTERPRETER),
    ("PYTHONSTARTUP", INTERPRETER),
    ("PYTHONUSERBASE", INTERPRETER),
    ("PYTHONWARNINGS", INTERPRETER),
    ("RUBYLIB", INTERPRETER),
    ("RUBYOPT", INTERPRETER),
    ("TCLLIBPATH", INTERPRETER),
    ("_JAVA_OPTIONS", INTERPRETER),
    ("TERRAFORM_CONFIG", TERRAFORM),
    ("TF_DATA_DIR", TERRAFORM),
    ("TF_ENCRYPTION", TERRAFORM),
    ("TF_FORCE_LOCAL_BACKEND", TERRAFORM),
    ("TF_INPUT", TERRAFORM),
    ("TF_IN_AUTOMATION", TERRAFORM),
    ("TF_WORKSPACE", TERRAFORM),
    ("AWS_CA_BUNDLE", TRUST),
    ("CURL_CA_BUNDLE", TRUST),
    ("NODE_EXTRA_CA_CERTS", TRUST),
    ("NODE_TLS_REJECT_UNAUTHORIZED", TRUST),
    ("REQUESTS_CA_BUNDLE", TRUST),
    ("SSL_CERT_DIR", TRUST),
    ("SSL_CERT_FILE", TRUST),
    ("SSH_ASKPASS", GIT),
    ("SSH_AUTH_SOCK", GIT),
    ("DOCKER_CONFIG", CLUSTER),
    ("HELM_CACHE_HOME", CLUSTER),
    ("HELM_CONFIG_HOME", CLUSTER),
    ("HELM_DATA_HOME", CLUSTER),
    ("HELM_PLUGINS", CLUSTER),
    ("KUBECONFIG", CLUSTER),
    ("KUSTOMIZE_PLUGIN_HOME", CLUSTER),
];

/// Reserved names of proxies, which programs accept in upper and in lower case.
const PROXIES: [&str; 5] = ["ALL_PROXY", "FTP_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"];

const LOADER: &str = "this variable changes how programs are loaded";
const PATHS: &str = "the runner sets the paths of programs and files";
const SHELL: &str = "this variable changes which commands a shell runs";
const INTERPRETER: &str = "this variable changes which code an interpreter loads";
const TERRAFORM: &str =
    "this variable changes how Terraform runs and where its state is; TF_VAR_* is allowed";
const TRUST: &str = "this variable changes which servers a program trusts";
const GIT: &str = "this variable changes which programs and servers git uses";
const CLUSTER: &str = "this variable selects the cluster of a deploy and the code that its tools load; only the \
     customer can set it";
const STEAD: &str = "names that begin with STEAD_ are reserved";
const PROXY: &str = "only the customer may set proxies";
const INVALID_NAME: &str =
    "a name has at most 256 letters, digits and _, and does not begin with a digit";

/// Returns the reason why the vendor may not set this variable. `None` if the vendor may set it.
pub fn reserved(name: &str) -> Option<&'static str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty()
        || name.len() > 256
        || !name.chars().all(is_plain)
        || name.starts_with(|c: char| c.is_ascii_digit())
    {
        return Some(INVALID_NAME);
    }
    if PROXIES.iter().any(|proxy| proxy.eq_ignore_ascii_case(name)) {
        return Some(PROXY);
    }
    let prefix = PREFIXES.iter().find(|(prefix, _)| name.starts_with(prefix));
    let exact = NAMES.iter().find(|(exact, _)| *exact == name);
    prefix.or(exact).map(|(_, reason)| *reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vendor_cannot_set_reserved_variables() {
        let reserved_names = [
            "LD_PRELOAD",
            "DYLD_INSERT_LIBRARIES",
            "PATH",
            "HOME",
            "BASH_ENV",
            "ENV",
            "IFS",
            "PYTHONPATH",
            "PERL5LIB",
            "RUBYOPT",
            "NODE_OPTIONS",
            "_JAVA_OPTIONS",
            "LUA_CPATH_5_4",
            "http_proxy",
            "HTTPS_PROXY",
            "TF_CLI_CONFIG_FILE",
            "TF_CLI_ARGS_plan",
            "TF_WORKSPACE",
            "GIT_SSH_COMMAND",
            "HELM_PLUGINS",
            "HELM_DRIVER_SQL_CONNECTION_STRING",
            "HELM_REPOSITORY_CONFIG",
            "XDG_DATA_HOME",
            "KUBE_CONFIG_PATHS",
            "KUBECONFIG",
            "STEAD_RUNNER",
            "BASH_FUNC_ls%%",
            "A=B",
            "",
            "1A",
        ];
        for name in reserved_names {
            assert!(reserved(name).is_some(), "{name}");
        }
        for name in [
            "LOG_LEVEL",
            "HELM_MAX_HISTORY",
            "TF_VAR_region",
            "TF_VERSION",
            "path",
            "PYTHONUNBUFFERED",
            "AWS_REGION",
            "NUON_APP_ID",
        ] {
            assert_eq!(reserved(name), None, "{name}");
        }
    }
}
