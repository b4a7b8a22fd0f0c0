<?php
// The front controller, and any other script.
header('X-Script: ' . basename(__FILE__));
setcookie('php', 'yes');
$content = file_get_contents('php://input');
$names = ['REQUEST_METHOD', 'REQUEST_URI', 'QUERY_STRING', 'SCRIPT_NAME', 'SCRIPT_FILENAME', 'PATH_INFO', 'DOCUMENT_ROOT',
  'DOCUMENT_URI', 'PHP_SELF', 'HTTPS', 'SERVER_PROTOCOL', 'SERVER_NAME', 'REMOTE_ADDR', 'HTTP_HOST', 'HTTP_X_OWN',
  'HTTP_PROXY', 'HTTP_REMOTE_USER', 'HTTP_X_FORWARDED_FOR', 'CONTENT_TYPE', 'CONTENT_LENGTH'];
foreach ($names as $name) {
    echo $name, '=', $_SERVER[$name] ?? 'none', "\n";
}
echo 'a=', $_POST['a'] ?? 'none', "\nfile=", __FILE__, "\nhash=", hash('sha256', $content), "\npid=", getmypid(), "\n";
if (isset($_GET['fail'])) {
    error_log('the application has failed');
    http_response_code(500);
}
if (isset($_GET['large'])) {
    echo str_repeat('x', (int) $_GET['large']);
}
if (isset($_GET['redirect'])) {
    header('Location: /elsewhere', true, 302);
}
