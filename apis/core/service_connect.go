package core

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"svc.dev/svc/apis/resource"
)

// serviceProxy is proxied to one of the pods behind a service.
var serviceProxy = resource.Connect{
	Name:        "proxy",
	Methods:     everyMethod,
	LongRunning: true,
	Options:     func() runtime.Object { return &corev1.ServiceProxyOptions{} },
	Subpath:     true,
	Locate: func(ctx context.Context, env *resource.Env, req resource.ConnectRequest) (*resource.Location, error) {
		scheme, name, port, err := splitName("service", req.Name)
		if err != nil {
			return nil, err
		}
		if _, err := strconv.Atoi(port); err == nil {
			if port, err = portName(ctx, env, req.Namespace, name, port); err != nil {
				return nil, err
			}
		}
		obj, err := env.Objects(corev1.Resource("endpoints")).Get(ctx, req.Namespace, name)
		if err != nil {
			return nil, err
		}
		endpoints := obj.(*corev1.Endpoints)
		if len(endpoints.Subsets) == 0 {
			return nil, noEndpoints(name)
		}
		host, err := randomHost(ctx, env, endpoints, port)
		if err != nil {
			return nil, err
		}
		if host == "" {
			return nil, noEndpoints(req.Name)
		}
		return &resource.Location{URL: &url.URL{
			Scheme: cmp.Or(scheme, "http"), Host: host, Path: req.Options.(*corev1.ServiceProxyOptions).Path,
		}}, nil
	},
}

// portName returns the name of the service's port with a number.
func portName(ctx context.Context, env *resource.Env, namespace, name, number string) (string, error) {
	obj, err := env.Objects(corev1.Resource("services")).Get(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	ports := obj.(*corev1.Service).Spec.Ports
	i := slices.IndexFunc(ports, func(p corev1.ServicePort) bool { return strconv.Itoa(int(p.Port)) == number })
	if i < 0 {
		return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %s found for service %q", number, name))
	}
	return ports[i].Name, nil
}

func noEndpoints(service string) error {
	return apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", service))
}

// podEndpoint is an endpoint of a service that refers to a pod of its namespace.
type podEndpoint struct {
	pod, ip string
	port    int32
}

// randomHost returns the address and port of a random endpoint of the named port, or ""
// if there is none. The pod that the endpoint refers to must have the address: a client
// that may write Endpoints must not choose what the API server connects to.
func randomHost(ctx context.Context, env *resource.Env, endpoints *corev1.Endpoints, port string) (string, error) {
	candidates := podEndpoints(endpoints, port)
	for _, i := range rand.Perm(len(candidates)) {
		c := candidates[i]
		p, err := getPod(ctx, env, endpoints.Namespace, c.pod)
		switch {
		case apierrors.IsNotFound(err), apierrors.IsBadRequest(err): // BadRequest: the name cannot be that of a pod
		case err != nil:
			return "", err
		case slices.Contains(p.Status.PodIPs, corev1.PodIP{IP: c.ip}):
			return net.JoinHostPort(c.ip, strconv.Itoa(int(c.port))), nil
		}
	}
	return "", nil
}

// podEndpoints returns the ready endpoints of the named port that refer to pods of the
// same namespace and whose addresses are not those of the API server's machine.
func podEndpoints(endpoints *corev1.Endpoints, port string) []podEndpoint {
	var found []podEndpoint
	for _, subset := range endpoints.Subsets {
		for _, p := range subset.Ports {
			if p.Name != port {
				continue
			}
			for _, address := range subset.Addresses {
				ip, target := net.ParseIP(address.IP), address.TargetRef
				isPod := target != nil && target.Kind == "Pod" && target.Namespace == endpoints.Namespace
				if isPod && ip != nil && ip.IsGlobalUnicast() {
					found = append(found, podEndpoint{pod: target.Name, ip: address.IP, port: p.Port})
				}
			}
		}
	}
	return found
}
