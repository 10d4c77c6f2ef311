package auth

import (
	"net/http"
	"strings"
)

// verbOf is the verb of the API that a request stands for: that of its method,
// but for what runs in containers or connects to them. That is creation, though
// a websocket is opened with GET: who may read is not to run commands by it, as
// they can at kubelet's port.
func verbOf(method, path string) string {
	for _, creates := range []string{"/exec/", "/attach/", "/portForward/", "/run/"} {
		if strings.HasPrefix(path, creates) {
			return "create"
		}
	}
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodGet:
		return "get"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	return ""
}

// subresourcesOf are the subresources of the node that stand for a path; to be
// allowed one of them is enough. KEP-2862 gives some paths a subresource of
// their own beside "proxy", which stands for all.
func subresourcesOf(path string) []string {
	for _, p := range []struct {
		path         string
		subresources []string
	}{
		{"/pods", []string{"pods", "proxy"}},
		{"/runningpods", []string{"pods", "proxy"}},
		{"/healthz", []string{"healthz", "proxy"}},
		{"/configz", []string{"configz", "proxy"}},
		{"/stats", []string{"stats"}},
		{"/metrics", []string{"metrics"}},
		{"/logs", []string{"log"}},
		{"/checkpoint", []string{"checkpoint"}},
		{"/statusz", []string{"statusz"}},
		{"/flagz", []string{"configz"}},
	} {
		if path == p.path || strings.HasPrefix(path, p.path+"/") {
			return p.subresources
		}
	}
	return []string{"proxy"}
}
