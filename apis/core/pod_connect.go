package core

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
)

// podConnects are the subresources that are proxied to a pod or to its node's agent.
var podConnects = []resource.Connect{podLog, podExec, podAttach, podPortForward, podProxy}

// upgradeMethods are the methods of subresources that upgrade the connection: a
// browser opens a websocket with GET.
var upgradeMethods = []string{http.MethodGet, http.MethodPost}

var podLog = resource.Connect{
	Name:        "log",
	LongRunning: true,
	Options:     func() runtime.Object { return &corev1.PodLogOptions{} },
	Answer:      "text/plain",
	Locate: func(ctx context.Context, env *resource.Env, req resource.ConnectRequest) (*resource.Location, error) {
		options := req.Options.(*corev1.PodLogOptions)
		if errs := validateLogOptions(options); len(errs) > 0 {
			return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("PodLogOptions").GroupKind(), req.Name, errs)
		}
		p, container, err := findContainer(ctx, env, req, options.Container)
		if err != nil {
			return nil, err
		}
		if p.Spec.NodeName == "" {
			return &resource.Location{}, nil // nothing was logged yet
		}
		where, err := inAgent(ctx, env, p, "containerLogs", container, logQuery(options))
		if err != nil {
			return nil, err
		}
		where.Unverified, where.Follow = options.InsecureSkipTLSVerifyBackend, options.Follow
		return where, nil
	},
}

// validateLogOptions validates the parameters of a log.
func validateLogOptions(o *corev1.PodLogOptions) field.ErrorList {
	var errs field.ErrorList
	if o.TailLines != nil && *o.TailLines < 0 {
		errs = append(errs, field.Invalid(field.NewPath("tailLines"), *o.TailLines, "must be greater than or equal to 0"))
	}
	if o.LimitBytes != nil && *o.LimitBytes < 1 {
		errs = append(errs, field.Invalid(field.NewPath("limitBytes"), *o.LimitBytes, "must be greater than 0"))
	}
	switch {
	case o.SinceSeconds != nil && o.SinceTime != nil:
		errs = append(errs, field.Forbidden(field.NewPath("sinceTime"), "at most one of `sinceTime` or `sinceSeconds` may be specified"))
	case o.SinceSeconds != nil && *o.SinceSeconds < 1:
		errs = append(errs, field.Invalid(field.NewPath("sinceSeconds"), *o.SinceSeconds, "must be greater than 0"))
	}
	if stream := o.Stream; stream != nil && *stream != corev1.LogStreamAll {
		errs = append(errs, resource.OneOf(field.NewPath("stream"), *stream, corev1.LogStreamAll, corev1.LogStreamStdout, corev1.LogStreamStderr)...)
		if o.TailLines != nil {
			errs = append(errs, field.Forbidden(field.NewPath("tailLines"), "`tailLines` and specific `stream` are mutually exclusive for now"))
		}
	}
	return errs
}

// logQuery is the query of a request to an agent for a log.
func logQuery(o *corev1.PodLogOptions) url.Values {
	query := url.Values{}
	flag := func(name string, on bool) {
		if on {
			query.Set(name, "true")
		}
	}
	number := func(name string, n *int64) {
		if n != nil {
			query.Set(name, strconv.FormatInt(*n, 10))
		}
	}
	flag("follow", o.Follow)
	flag("previous", o.Previous)
	flag("timestamps", o.Timestamps)
	number("sinceSeconds", o.SinceSeconds)
	number("tailLines", o.TailLines)
	number("limitBytes", o.LimitBytes)
	if o.SinceTime != nil {
		query.Set("sinceTime", o.SinceTime.UTC().Format(time.RFC3339))
	}
	if o.Stream != nil && *o.Stream != corev1.LogStreamAll {
		query.Set("stream", *o.Stream)
	}
	return query
}

var podExec = resource.Connect{
	Name:        "exec",
	Methods:     upgradeMethods,
	Verb:        "create",
	LongRunning: true,
	Options:     func() runtime.Object { return &corev1.PodExecOptions{} },
	Websocket:   resource.WebsocketStreams,
	Locate: func(ctx context.Context, env *resource.Env, req resource.ConnectRequest) (*resource.Location, error) {
		o := req.Options.(*corev1.PodExecOptions)
		return inContainer(ctx, env, req, "exec", o.Container,
			resource.Location{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, TTY: o.TTY}, url.Values{"command": o.Command})
	},
}

var podAttach = resource.Connect{
	Name:        "attach",
	Methods:     upgradeMethods,
	Verb:        "create",
	LongRunning: true,
	Options:     func() runtime.Object { return &corev1.PodAttachOptions{} },
	Websocket:   resource.WebsocketStreams,
	Locate: func(ctx context.Context, env *resource.Env, req resource.ConnectRequest) (*resource.Location, error) {
		o := req.Options.(*corev1.PodAttachOptions)
		return inContainer(ctx, env, req, "attach", o.Container,
			resource.Location{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, TTY: o.TTY}, url.Values{})
	},
}

// inContainer returns the location of a container's streams.
func inContainer(ctx context.Context, env *resource.Env, req resource.ConnectRequest, verb, name string, streams resource.Location, query url.Values) (*resource.Location, error) {
	p, container, err := findContainer(ctx, env, req, name)
	if err != nil {
		return nil, err
	}
	for parameter, on := range map[string]bool{"input": streams.Stdin, "output": streams.Stdout, "error": streams.Stderr, "tty": streams.TTY} {
		if on {
			query.Set(parameter, "1")
		}
	}
	where, err := inAgent(ctx, env, p, verb, container, query)
	if err != nil {
		return nil, err
	}
	where.UpgradeOnly = true
	where.Stdin, where.Stdout, where.Stderr, where.TTY = streams.Stdin, streams.Stdout, streams.Stderr, streams.TTY
	return where, nil
}

var podPortForward = resource.Connect{
	Name:        "portforward",
	Methods:     upgradeMethods,
	Verb:        "create",
	LongRunning: true,
	Options:     func() runtime.Object { return &corev1.PodPortForwardOptions{} },
	Websocket:   resource.WebsocketTunnel,
	Locate: func(ctx context.Context, env *resource.Env, req resource.ConnectRequest) (*resource.Location, error) {
		p, err := getPod(ctx, env, req.Namespace, req.Name)
		if err != nil {
			return nil, err
		}
		query := url.Values{}
		for _, port := range req.Options.(*corev1.PodPortForwardOptions).Ports {
			query.Add("port", strconv.Itoa(int(port)))
		}
		where, err := inAgent(ctx, env, p, "portForward", "", query)
		if err != nil {
			return nil, err
		}
		where.UpgradeOnly = true
		return where, nil
	},
}

// podProxy is proxied to a port of the pod.
var podProxy = resource.Connect{
	Name:        "proxy",
	Methods:     everyMethod,
	LongRunning: true,
	Options:     func() runtime.Object { return &corev1.PodProxyOptions{} },
	Subpath:     true,
	Locate: func(ctx context.Context, env *resource.Env, req resource.ConnectRequest) (*resource.Location, error) {
		scheme, name, port, err := splitName("pod", req.Name)
		if err != nil {
			return nil, err
		}
		p, err := getPod(ctx, env, req.Namespace, name)
		if err != nil {
			return nil, err
		}
		// A pod whose status names an address of the API server's machine must not
		// give access to that machine.
		ip := net.ParseIP(p.Status.PodIP)
		if ip == nil || !ip.IsGlobalUnicast() {
			return nil, apierrors.NewBadRequest("address not allowed")
		}
		if port == "" {
			port = firstPort(p)
		}
		where := &url.URL{Scheme: cmp.Or(scheme, "http"), Host: bareHost(ip), Path: req.Options.(*corev1.PodProxyOptions).Path}
		if port != "" {
			where.Host = net.JoinHostPort(ip.String(), port)
		}
		return &resource.Location{URL: where}, nil
	},
}

// firstPort returns the first port that a container of the pod declares.
func firstPort(p *corev1.Pod) string {
	for i := range p.Spec.Containers {
		if ports := p.Spec.Containers[i].Ports; len(ports) > 0 {
			return strconv.Itoa(int(ports[0].ContainerPort))
		}
	}
	return ""
}

// bareHost returns the host part of a URL for an address without a port.
func bareHost(ip net.IP) string {
	if ip.To4() == nil {
		return "[" + ip.String() + "]"
	}
	return ip.String()
}

// inAgent returns the location of an operation on a pod, or on a container of
// it, at the agent of the pod's node.
func inAgent(ctx context.Context, env *resource.Env, p *corev1.Pod, verb, container string, query url.Values) (*resource.Location, error) {
	if p.Spec.NodeName == "" {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", p.Name))
	}
	path := "/" + verb + "/" + p.Namespace + "/" + p.Name
	if container != "" {
		path += "/" + container
	}
	where, err := agentURL(ctx, env, p.Spec.NodeName, path)
	if err != nil {
		return nil, err
	}
	where.RawQuery = query.Encode()
	return &resource.Location{URL: where, Agent: true}, nil
}

func getPod(ctx context.Context, env *resource.Env, namespace, name string) (*corev1.Pod, error) {
	obj, err := env.Objects(corev1.Resource("pods")).Get(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return obj.(*corev1.Pod), nil
}

// findContainer returns the pod and the name of one of its containers: the named
// one or, without a name, the only one.
func findContainer(ctx context.Context, env *resource.Env, req resource.ConnectRequest, name string) (*corev1.Pod, string, error) {
	p, err := getPod(ctx, env, req.Namespace, req.Name)
	if err != nil {
		return nil, "", err
	}
	if name == "" && len(p.Spec.Containers) == 1 {
		return p, p.Spec.Containers[0].Name, nil
	}
	var names []string
	for _, c := range podspec.All(&p.Spec) {
		if c.Name == name {
			return p, name, nil
		}
		names = append(names, c.Name)
	}
	if name == "" {
		return nil, "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s, choose one of: %s", p.Name, names))
	}
	return nil, "", apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", name, p.Name))
}
