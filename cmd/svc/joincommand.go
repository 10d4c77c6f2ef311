package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/cluster-bootstrap/token/api"

	"svc.dev/svc/apiserver/groupdomain"
	"svc.dev/svc/internal/jointoken"
)

// joinCommand are the flags of svc token create about the command svclet join.
type joinCommand struct {
	print  bool
	server string
	// domain is the group domain of the fleet that the machine joins, whose host the cluster
	// is; empty for the cluster itself.
	domain string
}

// errors returns what is wrong with the flags, given the others.
func (j joinCommand) errors(token jointoken.Token, kubeconfig bool) []error {
	flag := j.flag()
	if flag == "" {
		return nil
	}
	var errs []error
	if j.domain != "" {
		if err := groupdomain.Validate(j.domain); err != nil {
			errs = append(errs, fmt.Errorf("--group-domain: %w", err))
		}
	}
	if kubeconfig {
		errs = append(errs, errors.New(flag+" excludes --print-kubeconfig: leave one of them out"))
	}
	for _, usage := range jointoken.Usages() {
		if !slices.Contains(token.Usages, usage) {
			errs = append(errs, fmt.Errorf("%s: a machine joins with a token that has the usage %s: add it to --usages", flag, usage))
		}
	}
	if server, err := url.Parse(j.server); j.server != "" && (err != nil || server.Scheme != "https" || server.Host == "") {
		errs = append(errs, fmt.Errorf("--server: invalid URL %q: must be like https://HOST:6443", j.server))
	}
	return errs
}

// flag returns the first of the flags that is set, or "".
func (j joinCommand) flag() string {
	switch {
	case j.print:
		return "--print-join-command"
	case j.server != "":
		return "--server"
	case j.domain != "":
		return "--group-domain"
	}
	return ""
}

// joins reports whether a machine can join by a token: it verifies the cluster by the
// token's signature, and authenticates with it.
func joins(token jointoken.Token) bool {
	return !slices.ContainsFunc(jointoken.Usages(), func(usage string) bool { return !slices.Contains(token.Usages, usage) })
}

// prepare publishes the cluster's information, by which machines verify the cluster,
// and returns the command.
func (j joinCommand) prepare(ctx context.Context, client kubernetes.Interface, config *rest.Config, token jointoken.Token) ([]byte, error) {
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, err
	}
	chain, err := cert.ParseCertsPEM(config.CAData)
	if err != nil {
		return nil, errors.New("--svcconfig: it has no authority of the API server, by which a machine verifies the cluster; name one with an authority")
	}
	server := j.server
	if server == "" {
		if server, err = advertised(ctx, client, config); err != nil {
			return nil, err
		}
	}
	if err := publishInfo(ctx, client, server, config.CAData); err != nil {
		return nil, err
	}
	line := fmt.Sprintf("svclet join %s --token %s", server, token)
	if j.domain != "" {
		line += " --group-domain " + j.domain
	}
	for _, certificate := range chain {
		line += " --ca-cert-hash " + jointoken.Pin(certificate)
	}
	return []byte(line + "\n"), nil
}

// note returns what is printed besides a token: until when a machine joins with it, and by
// which command; or why there is none, unless a flag asks for it.
func (j joinCommand) note(ctx context.Context, client kubernetes.Interface, config *rest.Config, token jointoken.Token) (string, error) {
	command, err := j.prepare(ctx, client, config, token)
	switch {
	case err != nil && j.flag() != "":
		return "", err
	case err != nil:
		return fmt.Sprintf("\nThere is no command by which a machine joins with the token: %v\n", err), nil
	case token.Expires.IsZero():
		return fmt.Sprintf("\nA machine joins with the token by this command:\n\n  %s", command), nil
	}
	return fmt.Sprintf("\nUntil %s a machine joins with the token by this command:\n\n  %s", token.Expires.Format(time.RFC3339), command), nil
}

// advertised returns the URL at which other machines reach the API server: that of the
// connection file or, if that is a loopback address, the one that the API server
// advertises in the service kubernetes.
func advertised(ctx context.Context, client kubernetes.Interface, config *rest.Config) (string, error) {
	if at, err := url.Parse(config.Host); err == nil && at.Scheme == "https" && !loopback(at.Hostname()) {
		return config.Host, nil
	}
	slice, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("read the address that the API server advertises: %w", err)
	}
	if err == nil {
		nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", fmt.Errorf("read the addresses of nodes: %w", err)
		}
		if at := endpoint(slice, func(address string) bool { return !forPods(address, nodes.Items) }); at != "" {
			return at, nil
		}
	}
	return "", errors.New("the API server is not reachable from other machines: start svc up with --bind-address=0.0.0.0, or name its address with --server")
}

// forPods reports whether an address is that of the bridge of this machine's pods, where svc
// up serves them only.
func forPods(address string, nodes []corev1.Node) bool {
	for _, n := range nodes {
		for _, a := range n.Status.Addresses {
			if a.Address == address {
				return false // the machine has a bridge of its own, as for virtual machines
			}
		}
	}
	links, err := net.Interfaces()
	if err != nil {
		return false
	}
	for _, link := range links {
		addresses, err := link.Addrs()
		if _, missing := os.Stat("/sys/class/net/" + link.Name + "/bridge"); err != nil || missing != nil {
			continue
		}
		for _, a := range addresses {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil && prefix.Addr().String() == address {
				return true
			}
		}
	}
	return false
}

// endpoint returns the URL of the first endpoint that other machines reach, or "".
func endpoint(slice *discoveryv1.EndpointSlice, reached func(address string) bool) string {
	for _, port := range slice.Ports {
		for _, endpoint := range slice.Endpoints {
			for _, address := range endpoint.Addresses {
				if port.Port != nil && !loopback(address) && reached(address) {
					return "https://" + net.JoinHostPort(address, strconv.Itoa(int(*port.Port)))
				}
			}
		}
	}
	return ""
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// infoReader is the name of the role by which every machine reads the cluster's
// information: kubeadm's.
const infoReader = "kubeadm:bootstrap-signer-clusterinfo"

// publishInfo writes the config map cluster-info, and the permission of every client
// to read it. The controller bootstrapsigner signs it with the tokens.
func publishInfo(ctx context.Context, client kubernetes.Interface, server string, authority []byte) error {
	if err := writeInfo(ctx, client.CoreV1().ConfigMaps(metav1.NamespacePublic), server, authority); err != nil {
		return fmt.Errorf("publish the cluster's information: %w", err)
	}
	meta := metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: infoReader}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{api.ConfigMapClusterInfo},
	}}}
	_, err := client.RbacV1().Roles(meta.Namespace).Create(ctx, role, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("let machines read the cluster's information: %w", err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: infoReader},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user.Anonymous}},
	}
	_, err = client.RbacV1().RoleBindings(meta.Namespace).Create(ctx, binding, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("let machines read the cluster's information: %w", err)
	}
	return nil
}

// writeInfo writes the config map cluster-info, unless it has the authority already.
func writeInfo(ctx context.Context, infos corev1client.ConfigMapInterface, server string, authority []byte) error {
	config := clientcmdapi.NewConfig()
	config.Clusters[""] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: authority}
	content, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	info, err := infos.Get(ctx, api.ConfigMapClusterInfo, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		info = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: api.ConfigMapClusterInfo}, Data: map[string]string{api.KubeConfigKey: string(content)}}
		_, err = infos.Create(ctx, info, metav1.CreateOptions{})
		return err
	}
	if err != nil || has(info.Data[api.KubeConfigKey], authority) {
		return err
	}
	if info.Data == nil {
		info.Data = map[string]string{}
	}
	info.Data[api.KubeConfigKey] = string(content)
	_, err = infos.Update(ctx, info, metav1.UpdateOptions{})
	return err
}

// has reports whether a kubeconfig has a cluster of an authority.
func has(kubeconfig string, authority []byte) bool {
	config, err := clientcmd.Load([]byte(kubeconfig))
	if err != nil {
		return false
	}
	for _, cluster := range config.Clusters {
		if bytes.Equal(cluster.CertificateAuthorityData, authority) {
			return true
		}
	}
	return false
}
