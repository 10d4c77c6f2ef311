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
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/util/proxy"

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
		find := endpointsHost
		if env.ProxyBySlices {
			find = sliceHost
		}
		host, err := find(ctx, env, req, name, port)
		if err != nil {
			return nil, err
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

// endpointsHost returns the address and port of a random address of the service's Endpoints with
// the named port.
func endpointsHost(ctx context.Context, env *resource.Env, req resource.ConnectRequest, name, port string) (string, error) {
	obj, err := env.Objects(corev1.Resource("endpoints")).Get(ctx, req.Namespace, name)
	if err != nil {
		return "", err
	}
	endpoints := obj.(*corev1.Endpoints)
	if len(endpoints.Subsets) == 0 {
		return "", noEndpoints(name)
	}
	candidates := candidatesOf(endpoints, port)
	for _, i := range rand.Perm(len(candidates)) {
		c := candidates[i]
		switch is, err := isPod(ctx, env, req.Namespace, c.target, c.ip); {
		case err != nil:
			return "", err
		case is:
			return net.JoinHostPort(c.ip, strconv.Itoa(int(c.port))), nil
		}
	}
	return "", noEndpoints(req.Name)
}

// candidate is a ready address of Endpoints.
type candidate struct {
	target *corev1.ObjectReference
	ip     string
	port   int32
}

// candidatesOf returns the ready addresses with the named port.
func candidatesOf(endpoints *corev1.Endpoints, port string) []candidate {
	var found []candidate
	for _, subset := range endpoints.Subsets {
		for _, p := range subset.Ports {
			if p.Name != port {
				continue
			}
			for _, address := range subset.Addresses {
				found = append(found, candidate{address.TargetRef, address.IP, p.Port})
			}
		}
	}
	return found
}

// sliceHost returns the address and port of a random ready endpoint of the service's
// EndpointSlices with the named port, if possible of the cluster's primary IP family.
func sliceHost(ctx context.Context, env *resource.Env, req resource.ConnectRequest, name, port string) (string, error) {
	ofService := labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: name})
	list, err := env.Objects(discoveryv1.Resource("endpointslices")).ListCached(ctx, req.Namespace, ofService)
	if err != nil {
		return "", err
	}
	all := make([]*discoveryv1.EndpointSlice, len(list))
	for i, obj := range list {
		all[i] = obj.(*discoveryv1.EndpointSlice)
	}
	family := corev1.IPv4Protocol
	if len(env.ServiceCIDRs) > 0 && env.ServiceCIDRs[0].Addr().Is6() {
		family = corev1.IPv6Protocol
	}
	var failure error
	host, err := proxy.RandomEndpoint(name, all, port, family, func(e *discoveryv1.Endpoint) bool {
		if failure != nil || len(e.Addresses) == 0 {
			return false
		}
		is, err := isPod(ctx, env, req.Namespace, e.TargetRef, e.Addresses[0])
		failure = err
		return is
	})
	if failure != nil {
		return "", failure
	}
	return host, err
}

// isPod reports whether an endpoint refers to a pod of the service's namespace that has the
// endpoint's address, and whether this is neither a loopback nor a link-local one: a client that may
// write endpoints must not choose what the API server connects to.
func isPod(ctx context.Context, env *resource.Env, namespace string, target *corev1.ObjectReference, address string) (bool, error) {
	ip := net.ParseIP(address)
	if target == nil || target.Kind != "Pod" || target.Namespace != namespace || ip == nil || !ip.IsGlobalUnicast() {
		return false, nil
	}
	p, err := getPod(ctx, env, namespace, target.Name)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsBadRequest(err): // BadRequest: the name cannot be that of a pod
		return false, nil
	case err != nil:
		return false, err
	}
	return slices.Contains(p.Status.PodIPs, corev1.PodIP{IP: address}), nil
}
