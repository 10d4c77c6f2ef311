package launch

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// DNS answers for the names of services in ClusterDomain, as the DNS add-on of a cluster
// does, and for no others: IPv4 addresses of SERVICE.NAMESPACE.svc and, of headless
// services, HOSTNAME.SERVICE.NAMESPACE.svc.
type DNS struct {
	client kubernetes.Interface
	conn   net.PacketConn
	done   chan struct{}
}

// dnsTTL is how long, in seconds, clients may keep an answer.
const dnsTTL = 1

// NewDNS starts a DNS server at an address of this machine, and makes it the endpoint of a
// service with the address ClusterDNS. The caller ends it with Stop.
func NewDNS(ctx context.Context, client kubernetes.Interface, address string) (*DNS, error) {
	conn, err := net.ListenPacket("udp", net.JoinHostPort(address, "0"))
	if err != nil {
		return nil, err
	}
	d := &DNS{client: client, conn: conn, done: make(chan struct{})}
	go d.serve()
	if err := d.publish(ctx, address, int32(conn.LocalAddr().(*net.UDPAddr).Port)); err != nil {
		return nil, errors.Join(err, d.Stop())
	}
	return d, nil
}

// Stop ends it.
func (d *DNS) Stop() error {
	err := d.conn.Close()
	<-d.done
	return err
}

// publish creates the service and its endpoint.
func (d *DNS) publish(ctx context.Context, address string, port int32) error {
	const name = "kube-dns"
	protocol := corev1.ProtocolUDP
	_, err := d.client.CoreV1().Services(metav1.NamespaceSystem).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{ClusterIP: ClusterDNS, Ports: []corev1.ServicePort{{Name: "dns", Port: 53, Protocol: protocol}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = d.client.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem).Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address}}},
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("dns"), Port: &port, Protocol: &protocol}},
	}, metav1.CreateOptions{})
	return err
}

// serve answers until the connection is closed.
func (d *DNS) serve() {
	defer close(d.done)
	buffer := make([]byte, 4096)
	for {
		n, from, err := d.conn.ReadFrom(buffer)
		if err != nil {
			return
		}
		var query dnsmessage.Message
		if query.Unpack(buffer[:n]) != nil || len(query.Questions) != 1 {
			continue
		}
		if packed, err := d.answer(query).Pack(); err == nil {
			_, _ = d.conn.WriteTo(packed, from) // a client asks again
		}
	}
}

func (d *DNS) answer(query dnsmessage.Message) *dnsmessage.Message {
	question := query.Questions[0]
	reply := &dnsmessage.Message{
		Header:    dnsmessage.Header{ID: query.ID, Response: true, Authoritative: true, RecursionDesired: query.RecursionDesired},
		Questions: query.Questions,
	}
	addresses, err := d.lookup(context.Background(), strings.TrimSuffix(question.Name.String(), "."))
	switch {
	case err != nil:
		reply.RCode = dnsmessage.RCodeServerFailure
	case addresses == nil:
		reply.RCode = dnsmessage.RCodeNameError
	case question.Type == dnsmessage.TypeA:
		for _, address := range addresses {
			reply.Answers = append(reply.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: question.Name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET, TTL: dnsTTL},
				Body:   &dnsmessage.AResource{A: address.As4()},
			})
		}
	}
	return reply
}

// lookup returns the addresses of a name, or nil if it does not exist.
func (d *DNS) lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	rest, found := strings.CutSuffix(name, ".svc."+ClusterDomain)
	labels := strings.Split(rest, ".")
	if !found || len(labels) < 2 || len(labels) > 3 {
		return nil, nil
	}
	namespace, service, hostname := labels[len(labels)-1], labels[len(labels)-2], ""
	if len(labels) == 3 {
		hostname = labels[0]
	}
	object, err := d.client.CoreV1().Services(namespace).Get(ctx, service, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if object.Spec.ClusterIP != corev1.ClusterIPNone {
		address, err := netip.ParseAddr(object.Spec.ClusterIP)
		return []netip.Addr{address}, err
	}
	return d.endpoints(ctx, object, hostname)
}

// endpoints returns the addresses of a headless service, of one host name or of all.
func (d *DNS) endpoints(ctx context.Context, service *corev1.Service, hostname string) ([]netip.Addr, error) {
	slices, err := d.client.DiscoveryV1().EndpointSlices(service.Namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service.Name})
	if err != nil {
		return nil, err
	}
	var addresses []netip.Addr
	for _, slice := range slices.Items {
		for _, endpoint := range slice.Endpoints {
			if hostname != "" && ptr.Deref(endpoint.Hostname, "") != hostname || !ptr.Deref(endpoint.Conditions.Ready, true) {
				continue
			}
			for _, text := range endpoint.Addresses {
				address, err := netip.ParseAddr(text)
				if err != nil {
					return nil, err
				}
				addresses = append(addresses, address)
			}
		}
	}
	return addresses, nil
}
