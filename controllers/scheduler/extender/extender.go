// Package extender owns the requests to scheduler extenders: programs that take part in
// the scheduler's decisions through HTTP, as kubescheduler.config.k8s.io/v1 configures
// them and k8s.io/kube-scheduler/extender/v1 defines their messages.
package extender

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	configv1 "k8s.io/kube-scheduler/config/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"svc.dev/svc/controllers/scheduler/decision"
)

// defaultTimeout is that of a request, if the configuration has none.
const defaultTimeout = 5 * time.Second

// pointsOfPriority are the points of a node's score for each point of an extender's
// priority: those of the scheduler end at 100.
const pointsOfPriority = 100 / extenderv1.MaxExtenderPriority

// Extender sends requests to one extender.
type Extender struct {
	config    configv1.Extender
	client    *http.Client
	resources sets.Set[corev1.ResourceName]
}

// New returns an extender. It fails if the files of the configuration cannot be read.
// Its certificate is verified unless tlsConfig.insecure is set, also without an authority
// in tlsConfig: then the system's are valid.
func New(config configv1.Extender) (*Extender, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if config.EnableHTTPS && config.TLSConfig != nil {
		c := config.TLSConfig
		tls, err := rest.TLSConfigFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{
			Insecure: c.Insecure, ServerName: c.ServerName, CertFile: c.CertFile, KeyFile: c.KeyFile, CAFile: c.CAFile,
			CertData: c.CertData, KeyData: c.KeyData, CAData: c.CAData,
		}})
		if err != nil {
			return nil, err
		}
		transport.TLSClientConfig = tls
	}
	e := &Extender{config: config, resources: sets.New[corev1.ResourceName]()}
	e.client = &http.Client{Transport: utilnet.SetTransportDefaults(transport), Timeout: config.HTTPTimeout.Duration}
	if e.client.Timeout == 0 {
		e.client.Timeout = defaultTimeout
	}
	for _, resource := range config.ManagedResources {
		e.resources.Insert(corev1.ResourceName(resource.Name))
	}
	return e, nil
}

// Ignorable reports whether pods are scheduled without the extender if it fails.
func (e *Extender) Ignorable() bool { return e.config.Ignorable }

// Binds reports whether the extender binds pods.
func (e *Extender) Binds() bool { return e.config.BindVerb != "" }

// String identifies the extender in messages.
func (e *Extender) String() string { return "extender " + e.config.URLPrefix }

// Extends reports whether the extender is asked about a pod: if it manages resources,
// only about pods that name one of them in a request or a limit.
func (e *Extender) Extends(pod *corev1.Pod) bool {
	if len(e.resources) == 0 {
		return true
	}
	names := func(list corev1.ResourceList) bool {
		for name := range list {
			if e.resources.Has(name) {
				return true
			}
		}
		return false
	}
	managed := func(c corev1.Container) bool { return names(c.Resources.Requests) || names(c.Resources.Limits) }
	return slices.ContainsFunc(pod.Spec.Containers, managed) || slices.ContainsFunc(pod.Spec.InitContainers, managed)
}

// Bind asks the extender to bind a pod.
func (e *Extender) Bind(ctx context.Context, pod *corev1.Pod, node string) error {
	var result extenderv1.ExtenderBindingResult
	err := e.post(ctx, e.config.BindVerb, extenderv1.ExtenderBindingArgs{PodName: pod.Name, PodNamespace: pod.Namespace, PodUID: pod.UID, Node: node}, &result)
	if err == nil && result.Error != "" {
		err = errors.New(result.Error)
	}
	if err != nil {
		return e.failed("bind", err)
	}
	return nil
}

// During returns the extender as decisions use it. The end of ctx ends its requests.
func (e *Extender) During(ctx context.Context) decision.Extender { return &asked{e, ctx} }

// asked is an extender during a run of the scheduler.
type asked struct {
	*Extender
	ctx context.Context
}

// Filter implements decision.Extender.
func (a *asked) Filter(pod *corev1.Pod, nodes []*corev1.Node) (decision.Filtered, error) {
	all := decision.Filtered{Accepted: sets.New(namesOf(nodes)...)}
	if a.config.FilterVerb == "" {
		return all, nil
	}
	answer, err := a.filter(pod, nodes, all.Accepted)
	if err == nil {
		return answer, nil
	}
	err = a.failed("filter", err)
	if a.Ignorable() {
		a.ignore(pod, err)
		return all, nil
	}
	return decision.Filtered{}, err
}

func (a *asked) filter(pod *corev1.Pod, nodes []*corev1.Node, known sets.Set[string]) (decision.Filtered, error) {
	var result extenderv1.ExtenderFilterResult
	if err := a.post(a.ctx, a.config.FilterVerb, a.args(pod, nodes), &result); err != nil {
		return decision.Filtered{}, err
	}
	if result.Error != "" {
		return decision.Filtered{}, errors.New(result.Error)
	}
	answer := decision.Filtered{Accepted: sets.New[string](), Rejected: result.FailedNodes, Unresolvable: result.FailedAndUnresolvableNodes}
	switch {
	case a.config.NodeCacheCapable && result.NodeNames != nil:
		answer.Accepted.Insert(*result.NodeNames...)
	case result.Nodes != nil:
		for i := range result.Nodes.Items {
			answer.Accepted.Insert(result.Nodes.Items[i].Name)
		}
	}
	if others := sets.List(answer.Accepted.Difference(known)); len(others) > 0 {
		return decision.Filtered{}, fmt.Errorf("the answer has nodes that the request has not: %s", strings.Join(others, ", "))
	}
	return answer, nil
}

// Prioritize implements decision.Extender. An extender that fails has no preference.
func (a *asked) Prioritize(pod *corev1.Pod, nodes []*corev1.Node) map[string]int64 {
	if a.config.PrioritizeVerb == "" {
		return nil
	}
	var result extenderv1.HostPriorityList
	if err := a.post(a.ctx, a.config.PrioritizeVerb, a.args(pod, nodes), &result); err != nil {
		a.ignore(pod, a.failed("prioritize", err))
		return nil
	}
	scores := make(map[string]int64, len(result))
	for _, priority := range result {
		scores[priority.Host] += priority.Score * a.config.Weight * pointsOfPriority
	}
	return scores
}

// Preempt implements decision.Extender.
func (a *asked) Preempt(pod *corev1.Pod, candidates map[string]*extenderv1.Victims) (map[string]*extenderv1.MetaVictims, error) {
	if a.config.PreemptVerb == "" {
		return metaOf(candidates), nil
	}
	args := extenderv1.ExtenderPreemptionArgs{Pod: pod}
	if a.config.NodeCacheCapable {
		args.NodeNameToMetaVictims = metaOf(candidates)
	} else {
		args.NodeNameToVictims = candidates
	}
	var result extenderv1.ExtenderPreemptionResult
	err := a.post(a.ctx, a.config.PreemptVerb, args, &result)
	for node, victims := range result.NodeNameToMetaVictims {
		switch {
		case err != nil:
		case candidates[node] == nil:
			err = fmt.Errorf("the answer has a node that the request has not: %s", node)
		case victims == nil || len(victims.Pods) == 0:
			err = fmt.Errorf("the answer has no pod to delete on node %s", node)
		}
	}
	if err == nil {
		return result.NodeNameToMetaVictims, nil
	}
	err = a.failed("preempt", err)
	if a.Ignorable() {
		a.ignore(pod, err)
		return metaOf(candidates), nil
	}
	return nil, err
}

// args are those of filter and prioritize.
func (a *asked) args(pod *corev1.Pod, nodes []*corev1.Node) *extenderv1.ExtenderArgs {
	args := &extenderv1.ExtenderArgs{Pod: pod}
	if a.config.NodeCacheCapable {
		names := namesOf(nodes)
		args.NodeNames = &names
		return args
	}
	args.Nodes = &corev1.NodeList{Items: make([]corev1.Node, len(nodes))}
	for i, n := range nodes {
		args.Nodes.Items[i] = *n
	}
	return args
}

// failed returns an error with the extender and the verb.
func (e *Extender) failed(verb string, err error) error {
	return fmt.Errorf("%s: %s: %w", e, verb, err)
}

// ignore logs an error of an extender without which the decision goes on.
func (a *asked) ignore(pod *corev1.Pod, err error) {
	klog.FromContext(a.ctx).Error(err, "Failed to ask a scheduler extender, will decide without it", "pod", klog.KObj(pod))
}

func namesOf(nodes []*corev1.Node) []string {
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = n.Name
	}
	return names
}

// metaOf returns the identifiers of the victims.
func metaOf(candidates map[string]*extenderv1.Victims) map[string]*extenderv1.MetaVictims {
	meta := make(map[string]*extenderv1.MetaVictims, len(candidates))
	for node, victims := range candidates {
		m := &extenderv1.MetaVictims{NumPDBViolations: victims.NumPDBViolations}
		for _, pod := range victims.Pods {
			m.Pods = append(m.Pods, &extenderv1.MetaPod{UID: string(pod.UID)})
		}
		meta[node] = m
	}
	return meta
}
