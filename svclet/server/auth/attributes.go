package auth

import (
	"net/http"
	"strings"
)

// verbOf returns the API verb that a request is authorized as. It follows from the
// method, except that exec, attach, run and port-forward are always "create",
// although a websocket is opened with GET: otherwise a user who may only read
// could run commands, which kubelet's port allows.
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

// subresourcesOf returns the node subresources that authorize a path; one of them
// is enough. KEP-2862 gives some paths a subresource of their own besides "proxy",
// which covers all paths.
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
