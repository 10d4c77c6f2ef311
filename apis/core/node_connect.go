package core

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"svc.dev/svc/apis/resource"
)

// everyMethod holds the methods that a proxy allows.
var everyMethod = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodHead, http.MethodOptions}

// splitName splits the name in a proxy's URL: SCHEME:NAME:PORT, of which only the
// name is required.
func splitName(kind, text string) (scheme, name, port string, err error) {
	scheme, name, port, valid := utilnet.SplitSchemeNamePort(text)
	if !valid {
		return "", "", "", apierrors.NewBadRequest(fmt.Sprintf("invalid %s request %q", kind, text))
	}
	return scheme, name, port, nil
}

// agentURL returns the URL of a path of a node's agent.
func agentURL(ctx context.Context, env *resource.Env, name, path string) (*url.URL, error) {
	obj, err := env.Objects(corev1.Resource("nodes")).Get(ctx, "", name)
	if err != nil {
		return nil, err
	}
	return env.Agents.URL(obj.(*corev1.Node), path)
}

// nodeProxy is proxied to a node's agent, or to another port of the node. Through
// the agent an upgraded connection can run commands in containers with the API
// server's own permissions, so it needs the verb of exec.
var nodeProxy = resource.Connect{
	Name:        "proxy",
	Methods:     everyMethod,
	UpgradeVerb: "create",
	LongRunning: true,
	Options:     func() runtime.Object { return &corev1.NodeProxyOptions{} },
	Subpath:     true,
	Locate: func(ctx context.Context, env *resource.Env, req resource.ConnectRequest) (*resource.Location, error) {
		scheme, name, port, err := splitName("node", req.Name)
		if err != nil {
			return nil, err
		}
		agent, err := agentURL(ctx, env, name, req.Options.(*corev1.NodeProxyOptions).Path)
		if err != nil {
			return nil, err
		}
		if port == "" || port == agent.Port() {
			return &resource.Location{URL: agent, Agent: true}, nil
		}
		if ip := net.ParseIP(agent.Hostname()); ip != nil && !ip.IsGlobalUnicast() {
			return nil, apierrors.NewBadRequest("address not allowed")
		}
		agent.Scheme, agent.Host = cmp.Or(scheme, "http"), net.JoinHostPort(agent.Hostname(), port)
		return &resource.Location{URL: agent}, nil
	},
}
