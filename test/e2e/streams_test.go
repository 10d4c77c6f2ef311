package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"k8s.io/client-go/rest"
	portforwardclient "k8s.io/client-go/tools/portforward"
	remoteclient "k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"svc.dev/svc/test/launch"
)

// echo is what runs in the containers of a fake agent: it says who was called
// how, then what it is told; "exit" is a command that fails.
type echo struct{}

func (echo) ExecInContainer(_ context.Context, pod, _, container string, command []string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	if len(command) > 0 && command[0] == "exit" {
		fmt.Fprint(errOut, "no\n")
		return utilexec.CodeExitError{Err: fmt.Errorf("exit status 7"), Code: 7}
	}
	fmt.Fprintf(out, "%s/%s %q tty=%t\n", pod, container, command, tty)
	if tty && resize != nil {
		size := <-resize
		fmt.Fprintf(out, "%dx%d\n", size.Width, size.Height)
	}
	if in != nil {
		_, err := io.Copy(out, in)
		return err
	}
	return nil
}

func (e echo) AttachContainer(ctx context.Context, pod, uid, container string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	return e.ExecInContainer(ctx, pod, uid, container, nil, in, out, errOut, tty, resize, 0)
}

func (echo) PortForward(_ context.Context, pod, _ string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	if port == 81 {
		return fmt.Errorf("no listener at port %d of %s", port, pod)
	}
	fmt.Fprintf(stream, "%s:%d ", pod, port)
	heard := make([]byte, 4)
	if _, err := io.ReadFull(stream, heard); err != nil {
		return err
	}
	_, err := stream.Write(bytes.ToUpper(heard))
	return err
}

// serveEcho lets echo run in all containers of the agent.
func (a *fakeAgent) serveEcho() {
	const idle, creation = launch.Patience, launch.Patience
	streams := func(serve func(w http.ResponseWriter, r *http.Request, o *remotecommand.Options)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			o, err := remotecommand.NewOptions(r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			serve(w, r, o)
		}
	}
	a.Handle("/exec/{namespace}/{pod}/{container}", streams(func(w http.ResponseWriter, r *http.Request, o *remotecommand.Options) {
		remotecommand.ServeExec(w, r, echo{}, r.PathValue("pod"), "", r.PathValue("container"), r.URL.Query()["command"], o, idle, creation, remotecommand.SupportedStreamingProtocols)
	}))
	a.Handle("/attach/{namespace}/{pod}/{container}", streams(func(w http.ResponseWriter, r *http.Request, o *remotecommand.Options) {
		remotecommand.ServeAttach(w, r, echo{}, r.PathValue("pod"), "", r.PathValue("container"), o, idle, creation, remotecommand.SupportedStreamingProtocols)
	}))
	a.HandleFunc("/portForward/{namespace}/{pod}", func(w http.ResponseWriter, r *http.Request) {
		o, err := portforward.NewV4Options(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		portforward.ServePortForward(w, r, echo{}, r.PathValue("pod"), "", o, idle, creation, portforward.SupportedProtocols)
	})
}

// onlySize is a terminal that keeps its size.
type onlySize chan remoteclient.TerminalSize

func (s onlySize) Next() *remoteclient.TerminalSize {
	size, more := <-s
	if !more {
		return nil
	}
	return &size
}

// terminal is one of 80 columns and 24 lines, until the spec ends.
func terminal() onlySize {
	s := make(onlySize, 1)
	s <- remoteclient.TerminalSize{Width: 80, Height: 24}
	DeferCleanup(func() { close(s) })
	return s
}

// ways are how a client may speak with a command in a container.
var ways = map[string]func(config *rest.Config, to *url.URL) (remoteclient.Executor, error){
	"SPDY": func(config *rest.Config, to *url.URL) (remoteclient.Executor, error) {
		return remoteclient.NewSPDYExecutor(config, http.MethodPost, to)
	},
	"websocket v5": func(config *rest.Config, to *url.URL) (remoteclient.Executor, error) {
		return remoteclient.NewWebSocketExecutor(config, http.MethodGet, to.String())
	},
	"websocket v4": func(config *rest.Config, to *url.URL) (remoteclient.Executor, error) {
		return remoteclient.NewWebSocketExecutorForProtocols(config, http.MethodGet, to.String(), remotecommand.StreamProtocolV4Name)
	},
}

var _ = Describe("what runs in a container", func() {
	var (
		k     *sandbox
		agent *fakeAgent
	)
	BeforeEach(func(ctx SpecContext) {
		k = newSandbox(ctx)
		agent = newFakeAgent(ctx)
		agent.serveEcho()
		agent.pod(ctx, k.Namespace, "web", "c", "d")
	})

	// talk runs what is at a pod's subresource, and returns what it says.
	talk := func(ctx context.Context, config *rest.Config, way, subresource string, o remoteclient.StreamOptions) (string, string, error) {
		GinkgoHelper()
		to, err := url.Parse(config.Host + k.pathOf(subresource))
		Expect(err).NotTo(HaveOccurred())
		executor, err := ways[way](config, to)
		Expect(err).NotTo(HaveOccurred())
		var out, errOut bytes.Buffer
		o.Stdout = &out
		if !o.Tty {
			o.Stderr = &errOut
		}
		err = executor.StreamWithContext(ctx, o)
		return out.String(), errOut.String(), err
	}

	for way := range ways {
		It("is spoken with by "+way, func(ctx SpecContext) {
			out, errOut, err := talk(ctx, server.Config, way, "web/exec?container=c&command=cat&command=-&stdout=true&stderr=true", remoteclient.StreamOptions{})
			Expect(err).NotTo(HaveOccurred())
			Expect(out + errOut).To(Equal("web/c [\"cat\" \"-\"] tty=false\n"))
			out, _, err = talk(ctx, server.Config, way, "web/exec?container=d&command=exit&stdout=true&stderr=true", remoteclient.StreamOptions{})
			Expect(out).To(BeEmpty())
			Expect(err).To(And(MatchError("command terminated with exit code 7"), HaveField("Code", 7)))
			out, _, err = talk(ctx, server.Config, way, "web/attach?container=d&stdout=true&tty=true", remoteclient.StreamOptions{Tty: true, TerminalSizeQueue: terminal()})
			Expect(err).NotTo(HaveOccurred())
			Expect(out).To(HavePrefix("web/d [] tty=true\n80x24\n"))
		})
	}

	for _, way := range []string{"SPDY", "websocket v5"} { // v4 cannot end its input
		It("hears its input to the end by "+way, func(ctx SpecContext) {
			long := strings.Repeat("what is said is said again. ", 10000)
			out, _, err := talk(ctx, server.Config, way, "web/exec?container=c&command=cat&stdin=true&stdout=true&stderr=true",
				remoteclient.StreamOptions{Stdin: strings.NewReader(long)})
			Expect(err).NotTo(HaveOccurred())
			Expect(out).To(Equal("web/c [\"cat\"] tty=false\n" + long))
		})
	}

	It("is spoken with by kubectl", func() {
		Expect(k.pipe("hello", "exec", "-i", "web", "-c", "c", "--", "cat")).To(Equal("web/c [\"cat\"] tty=false\nhello"))
		Expect(agent.last().Method).To(Equal(http.MethodPost), "a websocket becomes SPDY")
		Expect(agent.last().Header.Get("Upgrade")).To(Equal("SPDY/3.1"))
		Expect(k.pipe("hello", "attach", "-i", "web", "-c", "d")).To(ContainSubstring("web/d [] tty=false\nhello"))
		_, _, err := k.try("", "exec", "web", "-c", "c", "--", "exit")
		Expect(err).To(MatchError("exit status 7"))
	})

	DescribeTable("needs permission", func(ctx SpecContext, way string) {
		alice := rest.AnonymousClientConfig(server.Config)
		alice.BearerToken = aliceToken
		_, _, err := talk(ctx, alice, way, "web/exec?container=c&command=id&stdout=true", remoteclient.StreamOptions{})
		Expect(err).To(MatchError(ContainSubstring(`"alice" cannot`)))
		Expect(agent.last()).To(BeNil())
	}, Entry(nil, "SPDY"), Entry(nil, "websocket v4"), Entry(nil, "websocket v5"))

	It("is reached by upgrades only, of which bad ones are answered", func() {
		for _, subresource := range []string{"web/exec?container=c&command=id&stdout=true", "web/attach?container=c&stdout=true", "web/portforward"} {
			a := send(request{method: http.MethodPost, path: k.pathOf(subresource)})
			Expect(a.status).To(Equal(http.StatusBadRequest), subresource)
			Expect(a.asStatus().Message).To(Equal("Upgrade request required"))
		}
		Expect(k.fails("", "exec", "web", "-c", "none", "--", "true")).To(ContainSubstring("container none is not valid for pod web"))
		Expect(k.fails("", "exec", "absent", "-c", "c", "--", "true")).To(ContainSubstring(`pods "absent" not found`))
		Expect(agent.last()).To(BeNil())
	})

	It("fails with the agent's error when the agent does not have the container", func(ctx SpecContext) {
		agent.HandleFunc("/exec/{namespace}/gone/{container}", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, `unable to upgrade connection: container not found ("c")`, http.StatusNotFound)
		})
		agent.Handle("/exec/{namespace}/elsewhere/{container}", http.RedirectHandler("/exec/x/web/c", http.StatusFound))
		agent.pod(ctx, k.Namespace, "gone", "c")
		agent.pod(ctx, k.Namespace, "elsewhere", "c")
		Expect(k.fails("", "exec", "gone", "--", "true")).To(ContainSubstring(`container not found ("c")`))
		Expect(k.fails("", "exec", "elsewhere", "--", "true")).To(ContainSubstring("redirect"))
		Expect(agent.last().PathValue("pod")).NotTo(Equal("web"))
	})
})

var _ = Describe("a pod's ports", func() {
	var (
		k     *sandbox
		agent *fakeAgent
	)
	BeforeEach(func(ctx SpecContext) {
		k = newSandbox(ctx)
		agent = newFakeAgent(ctx)
		agent.serveEcho()
		agent.pod(ctx, k.Namespace, "web", "c")
	})

	// forward forwards ports of the machine to ports of the pod.
	forward := func(way string, ports ...string) []portforwardclient.ForwardedPort {
		GinkgoHelper()
		to, err := url.Parse(server.Config.Host + k.pathOf("web/portforward"))
		Expect(err).NotTo(HaveOccurred())
		transport, upgrader, err := spdy.RoundTripperFor(server.Config)
		Expect(err).NotTo(HaveOccurred())
		dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, to)
		if way == "websocket" {
			dialer, err = portforwardclient.NewSPDYOverWebsocketDialer(to, server.Config)
			Expect(err).NotTo(HaveOccurred())
		}
		stop, ready, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		forwarder, err := portforwardclient.NewOnAddresses(dialer, []string{"127.0.0.1"}, ports, stop, ready, io.Discard, io.Discard)
		Expect(err).NotTo(HaveOccurred())
		go func() { done <- forwarder.ForwardPorts() }()
		DeferCleanup(func() {
			close(stop)
			Eventually(done).Should(Receive())
		})
		Eventually(ready).Should(BeClosed())
		forwarded, err := forwarder.GetPorts()
		Expect(err).NotTo(HaveOccurred())
		return forwarded
	}
	// call says something at a port, and returns what is answered.
	call := func(port uint16, word string) string {
		GinkgoHelper()
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		Expect(err).NotTo(HaveOccurred())
		defer conn.Close()
		Expect(conn.SetDeadline(time.Now().Add(launch.Patience))).To(Succeed())
		_, err = io.WriteString(conn, word)
		Expect(err).NotTo(HaveOccurred())
		answer, _ := io.ReadAll(conn) // a port that fails is cut off
		return string(answer)
	}

	for _, way := range []string{"SPDY", "websocket"} {
		It("are forwarded by "+way+", each to as many as call", func() {
			ports := forward(way, "0:80", "0:443")
			for range 3 {
				Expect(call(ports[0].Local, "ping")).To(Equal("web:80 PING"))
				Expect(call(ports[1].Local, "pong")).To(Equal("web:443 PONG"))
			}
		})
	}

	It("report in kubectl why they fail", func() {
		session := k.start("port-forward", "web", ":81")
		Eventually(session.Out).Should(gbytes.Say(`Forwarding from 127.0.0.1:\d+ -> 81\n`))
		var port uint16
		_, err := fmt.Sscanf(string(session.Out.Contents()), "Forwarding from 127.0.0.1:%d", &port)
		Expect(err).NotTo(HaveOccurred())
		Expect(call(port, "ping")).To(BeEmpty())
		Eventually(session.Err).Should(gbytes.Say("no listener at port 81 of web"))
	})
})
