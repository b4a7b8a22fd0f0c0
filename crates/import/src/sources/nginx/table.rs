//! The directives of nginx.

use crate::table::Handling::{Default, Key, NotYet, Unneeded};
use crate::table::{Row, rows};

const PROXY: &str = "responses of applications are neither cached nor changed, and reached without TLS";
const KEEP_PROXY: &str = "let the application do it, or keep nginx in front of it";
const KERNEL: &str = "the server selects the system calls itself";
const TLS: &str = "TLS 1.2 and 1.3 with current cipher suites, sessions and tickets";
const NO_VARIABLES: &str = "rules have no variables, and only routes have conditions on fields and cookies";
/// That of requests by their method.
pub(super) const NO_METHODS: &str = "only routes have conditions on methods";
pub(super) const SET_METHODS: &str =
    "set `methods` in the route of an application; files answer only GET, HEAD and OPTIONS";
const NO_PART: &str = "answers are made of whole files";
const ONE_APPLICATION: &str = "run the module in an application on another host name";

pub(crate) const TABLE: &[Row] = rows! {
    "" "listen" => Key(&["http.listen", "https.listen"], "all addresses serve all domains");
    "" "server_name" => Key(&["domain.aliases"], "the first name is the section; `_`, or none, is `[domain.\"*\"]`");
    "" "root" => Key(&["domain.site"], "one document root for each domain");
    "" "index" => Key(&["domain.index"], "");
    "" "autoindex" => Key(&["domain.listing"], "");
    "" "try_files" => Key(&["domain.redirects", "domain.clean_urls"], "");
    "" "return" => Key(&["domain.redirects", "domain.route"], "redirects, which pass the query on; errors, and fixed texts");
    "" "rewrite" => Key(&["domain.redirects"], "if the expression has a pattern");
    "" "if" => Key(&["domain.redirects"], "conditions on `$host` and `$scheme`, and on missing files");
    "" "error_page" => Key(&["domain.redirects"], "404 only; `/404.html` needs no rule");
    "" "location" => Key(&["domain.redirects", "domain.headers", "domain.access", "domain.auth"],
        "prefixes, and expressions that have a pattern");
    "" "add_header" => Key(&["domain.headers", "domain.hsts"],
        "fields of an outer block stay, unless the inner block replaces them");
    "" "expires" => Key(&["domain.headers"], "");
    "" "gzip" => Key(&["domain.compress"], "on by default");
    "" "types" => Key(&["domain.media_types"], "");
    "" "auth_basic" | "auth_basic_user_file" => Key(&["domain.auth"], "hashes of bcrypt or Argon2");
    "" "allow" | "deny" => Key(&["domain.access"], "");
    "" "ssl_certificate" | "ssl_certificate_key" => Key(&["domain.certificate"], "");
    "" "access_log" | "log_format" => Key(&["log.access", "log.format"], "one log for all domains");
    "" "user" => Key(&["user", "group"], "");
    "" "worker_processes" => Key(&["workers"], "");
    "" "worker_connections" => Default("10,000 connections of all workers; `http_connections_max` changes it");
    "" "keepalive_timeout" => Key(&["limits.http_idle_timeout"], "");
    "" "limit_req_zone" | "limit_req" => Key(&["limits.http_requests_per_second_max", "limits.http_requests_at_once_max"],
        "for a whole server; there is one rate for all paths");
    "" "limit_conn_zone" | "limit_conn" => Key(&["limits.http_connections_per_client_max"], "for a whole server");
    "" "set_real_ip_from" | "real_ip_header" => Key(&["http.trusted_proxies", "http.client_from"], "");
    "" "disable_symlinks" => Default("links that lead out of the site are refused");
    "" "http" | "server" | "events" | "include" => Default("the blocks and included files are read");
    "" "http2" => Default("HTTP/2 over TLS is on");
    "" "charset" | "charset_types" | "default_type" | "override_charset" | "source_charset" =>
        Default("sends media types from the IANA registry, and text as UTF-8");
    "" "types_hash_*" | "server_names_hash_*" | "variables_hash_*" | "map_hash_*" => Unneeded("tables grow as needed");
    "" "gzip_*" | "brotli" | "brotli_*" | "gunzip" | "zstd" | "zstd_*" =>
        Default("compresses text with brotli, zstd and gzip, and sends precompressed files");
    "" "etag" | "if_modified_since" | "max_ranges" => Default("sends validators, and answers conditions and ranges");
    "" "real_ip_recursive" => Default("the last address that is not a trusted proxy counts");
    "" "server_tokens" => Default("the field `Server` has no version");
    "" "merge_slashes" | "port_in_redirect" | "server_name_in_redirect" | "absolute_redirect" =>
        Default("paths are normalized, and redirects stay at the host and port of the request");
    "" "http2_*" | "http3*" | "quic_*" | "ssl_protocols" | "ssl_ciphers" | "ssl_prefer_server_ciphers" | "ssl_session_*" |
        "ssl_ecdh_curve" | "ssl_early_data" | "ssl_buffer_size" | "ssl_conf_command" | "ssl" => Default(TLS);
    "" "open_file_cache*" | "sendfile*" | "tcp_nopush" | "tcp_nodelay" | "aio*" | "directio*" | "use" | "multi_accept" |
        "accept_mutex*" | "epoll_events" | "output_buffers" | "postpone_output" | "read_ahead" | "thread_pool" |
        "worker_aio_requests" | "worker_cpu_affinity" | "worker_priority" | "timer_resolution" => Default(KERNEL);
    "" "server_name_*" | "pcre_jit" | "daemon" | "master_process" | "pid" | "lock_file" | "working_directory" |
        "worker_rlimit_*" | "worker_shutdown_timeout" | "load_module" | "env" | "ssl_engine" | "debug_*" =>
        Unneeded("the supervisor and the service manager do this");
    "" "error_log" | "log_not_found" | "log_subrequest" | "rewrite_log" | "open_log_file_cache" =>
        Unneeded("messages go to standard error, which the service manager keeps");
    "" "client_body_*" | "client_header_*" | "large_client_header_buffers" | "connection_pool_size" | "request_pool_size" | "send_timeout" |
        "send_lowat" | "keepalive_*" | "reset_timedout_connection" | "lingering_*" | "ignore_invalid_headers" |
        "underscores_in_headers" | "chunked_transfer_encoding" | "msie_padding" | "msie_refresh" =>
        Unneeded("buffers and deadlines have their own limits; the content of a request for a file is discarded");
    "" "ssl_dhparam" => Unneeded("key exchange uses elliptic curves and ML-KEM");
    "" "ssl_stapling*" | "ssl_trusted_certificate" | "resolver*" =>
        Unneeded("revocation is not stapled: short-lived certificates replace it");
    "" "internal" => Unneeded("error pages and rewritten files have ordinary URLs too");
    "" "proxy_pass" | "fastcgi_pass" | "upstream" => Key(&["domain.route"], "an address or `localhost`, without TLS");
    "" "proxy_set_header" | "proxy_hide_header" | "fastcgi_hide_header" | "proxy_read_timeout" | "proxy_connect_timeout" |
        "proxy_send_timeout" | "fastcgi_read_timeout" | "fastcgi_connect_timeout" | "fastcgi_send_timeout" |
        "client_max_body_size" => Key(&["domain.route"], "fields, times and sizes of a route");
    "" "proxy_http_version" | "proxy_buffer*" | "proxy_busy_buffers_size" | "proxy_request_buffering" | "proxy_redirect" |
        "proxy_pass_header" | "proxy_pass_request_*" | "proxy_socket_keepalive" | "proxy_temp_*" | "proxy_max_temp_file_size" |
        "proxy_headers_hash*" | "proxy_next_upstream*" | "proxy_ignore_client_abort" | "proxy_method" =>
        Default("requests and responses are passed on as they arrive, and WebSocket too");
    "" "fastcgi_param" | "fastcgi_index" | "fastcgi_split_path_info" | "fastcgi_buffer*" | "fastcgi_busy_buffers_size" |
        "fastcgi_keep_conn" | "fastcgi_temp_*" | "fastcgi_request_buffering" | "fastcgi_pass_header" |
        "fastcgi_pass_request_*" | "fastcgi_next_upstream*" | "fastcgi_ignore_client_abort" | "fastcgi_socket_keepalive" =>
        Default("scripts get the parameters of CGI, with the document root");
    "" "fastcgi_*" | "proxy_*" => NotYet(PROXY, KEEP_PROXY);
    "" "uwsgi_*" | "scgi_*" | "memcached_*" | "grpc_*" | "split_clients" =>
        NotYet("applications speak HTTP/1.1 or FastCGI", "let the application listen with one of them");
    "" "alias" => NotYet("a domain has one document root",
        "put a symbolic link into the site, and name its target in `link_targets`");
    "" "map" | "geo" | "set" | "valid_referers" | "geoip*" => NotYet(NO_VARIABLES, "write a rule for each path or host");
    "" "stream" | "mail" => NotYet("only HTTP, HTTPS and DNS are served", "keep nginx, HAProxy or a mail server for it");
    "" "satisfy" => NotYet("a path with both `auth` and `access` requires both", "choose one of the two");
    "" "limit_rate" | "limit_rate_after" => NotYet("the rate of a response is not limited", "shape traffic with tc");
    "" "limit_except" => NotYet(NO_METHODS, SET_METHODS);
    "" "ssl_client_certificate" | "ssl_verify_*" | "ssl_crl" | "ssl_ocsp*" =>
        NotYet("clients are not asked for certificates", "use `auth` or `access`");
    "" "ssl_reject_handshake" => Key(&["https.refuse_unknown_names"], "");
    "" "add_trailer" | "more_*" => NotYet("trailers cannot be changed, and `more_*` is a module", "write the fields in `headers`, where `false` removes one");
    "" "sub_filter*" | "ssi*" | "addition_*" | "add_before_body" | "add_after_body" | "xslt_*" | "image_filter*" |
        "mp4*" | "flv" | "slice" => NotYet(NO_PART, "build the files beforehand");
    "" "autoindex_*" | "fancyindex*" => Default("listings are pages, or JSON for clients that ask for it");
    "" "stub_status" | "status*" | "vhost_traffic_*" => NotYet("no site has a status page",
        "use `[metrics]` and `sanderling status`");
    "" "auth_request*" => NotYet("an authenticator is not translated", "write `forward_auth` in the route");
    "" "auth_jwt*" | "secure_link*" | "perl*" | "js_*" | "lua_*" | "access_by_*" | "content_by_*" |
        "rewrite_by_*" | "header_filter_by_*" | "init_by_*" | "dav_*" | "create_full_put_path" | "empty_gif" |
        "random_index" | "mirror*" | "userid*" | "modsecurity*" | "pagespeed*" =>
        NotYet("requests are not passed to a module", ONE_APPLICATION);
    "" "limit_*" => NotYet("rates have only the keys of `[limits]`", "set `http_requests_per_second_max`");
    "" "break" | "error_page_*" | "recursive_error_pages" | "uninitialized_variable_warn" =>
        Unneeded("a rule leads to a file, not to another rule");
};
