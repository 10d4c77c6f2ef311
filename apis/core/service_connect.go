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
		hosts := readyHosts(obj.(*corev1.Endpoints), port)
		if len(hosts) == 0 {
			return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", req.Name))
		}
		return &resource.Location{URL: &url.URL{
			Scheme: cmp.Or(scheme, "http"), Host: hosts[rand.IntN(len(hosts))], Path: req.Options.(*corev1.ServiceProxyOptions).Path,
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

// readyHosts returns the endpoints of the named port that are pods and whose
// addresses are not those of the API server's machine.
func readyHosts(endpoints *corev1.Endpoints, port string) []string {
	var hosts []string
	for _, subset := range endpoints.Subsets {
		for _, p := range subset.Ports {
			if p.Name != port {
				continue
			}
			for _, address := range subset.Addresses {
				ip := net.ParseIP(address.IP)
				isPod := address.TargetRef != nil && address.TargetRef.Kind == "Pod"
				if isPod && ip != nil && ip.IsGlobalUnicast() {
					hosts = append(hosts, net.JoinHostPort(address.IP, strconv.Itoa(int(p.Port))))
				}
			}
		}
	}
	return hosts
}
