// Command server is what pods of the suite run: an HTTP server whose readiness
// can be turned, which takes memory when it is told to, and says which signals
// reach it.
//
//	GET  /            the name of its pod (the host name)
//	GET  /ready       200, or 503 after POST /ready?is=false
//	POST /ready?is=X  sets what GET /ready answers
//	POST /hog?mib=N   takes N MiB of memory, and keeps them
//	POST /exit?code=N ends with an exit code
//	GET  /slow?for=D  answers after a time
//	GET  /hook        prints that it was asked
//	GET  /client      the address of the client
//	GET  /whoami      the pod's user at the API server, and which token says so;
//	                  with ?new=true, by a new client
//	GET  /ask?verb=V&path=P  what the API server answers to the pod
//	POST /load?url=U&rate=N  begins to get a URL N times a second
//	DELETE /load      stops that, and answers how often it was answered; 502 if
//	                  not always
//	POST /records?record=X   appends a record to the file --records, and answers
//	                  when it is on the disk
//
// With --ask=URL it gets the URL, and ends. With --ask=udp://ADDRESS it prints the answer to
// a datagram.
//
// With --reach=PROTOCOL://ADDRESS (tcp, udp or sctp), which may be given several times, it
// prints those that answer, and ends.
//
// It answers datagrams, too, at the same port, with the name of its pod. At --peer=ADDRESS, which
// may be given several times, it answers connections, datagrams and SCTP likewise.
//
// It serves the health service of gRPC, too, at --grpc, which answers likewise.
//
// It prints each signal that it gets, and ends --delay after SIGTERM, when
// requests under way have been answered.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

func main() {
	listen := flag.String("listen", ":8080", "address to serve at")
	delay := flag.Duration("delay", 0, "time from SIGTERM to the end")
	unready := flag.Bool("unready", false, "not ready until told to be")
	grpcListen := flag.String("grpc", "", "address to serve gRPC at")
	ask := flag.String("ask", "", "URL to get instead of serving; whatever is not 200 is a failure")
	var reached, peers []string
	flag.Func("reach", "address to try instead of serving", func(text string) error { reached = append(reached, text); return nil })
	flag.Func("peer", "address to answer at", func(text string) error { peers = append(peers, text); return nil })
	recordsFile := flag.String("records", "", "file of records to append to; it is checked at the start")
	flag.Parse()
	if address, datagram := strings.CutPrefix(*ask, "udp://"); datagram {
		os.Exit(askByDatagram(address))
	} else if *ask != "" {
		os.Exit(get(*ask))
	}
	if len(reached) > 0 {
		try(reach(reached))
		return
	}
	try(answerDatagrams("udp", *listen))
	for _, at := range peers {
		try(answerPeers(at))
	}
	health := health.NewServer()
	try(serveGRPC(*grpcListen, health))
	mux := handler(!*unready, health)
	if *recordsFile != "" {
		kept, err := openRecords(*recordsFile)
		try(err)
		mux.HandleFunc("POST /records", kept.serve)
	}
	try(serve(*listen, *delay, mux))
}

// try ends the program if there is an error.
func try(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// get returns an exit code.
func get(url string) int {
	resp, err := http.Get(url)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
	if resp.StatusCode != http.StatusOK {
		return 1
	}
	return 0
}

// serveGRPC serves at an address if there is one.
func serveGRPC(listen string, health *health.Server) error {
	if listen == "" {
		return nil
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	healthpb.RegisterHealthServer(server, health)
	go func() {
		if err := server.Serve(listener); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}()
	return nil
}

func serve(listen string, delay time.Duration, handler http.Handler) error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals)
	server := &http.Server{Addr: listen, Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	fmt.Println("serving at", listen)
	for {
		select {
		case err := <-failed:
			return err
		case s := <-signals:
			if s == syscall.SIGURG { // Go's own
				continue
			}
			fmt.Println("signal:", s)
			if s != syscall.SIGTERM && s != syscall.SIGINT {
				continue
			}
			time.Sleep(delay)
			if err := server.Shutdown(context.Background()); err != nil && !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			fmt.Println("ended in order")
			return nil
		}
	}
}

func handler(isReady bool, health *health.Server) *http.ServeMux {
	var ready atomic.Bool
	be := func(isReady bool) {
		ready.Store(isReady)
		status := healthpb.HealthCheckResponse_NOT_SERVING
		if isReady {
			status = healthpb.HealthCheckResponse_SERVING
		}
		health.SetServingStatus("", status)
		health.SetServingStatus("web", status)
	}
	be(isReady)
	var mu sync.Mutex
	var hoard [][]byte
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		name, err := os.Hostname()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, name)
	})
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
		if !ready.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintln(w, ready.Load())
	})
	mux.HandleFunc("POST /ready", func(_ http.ResponseWriter, r *http.Request) {
		be(r.FormValue("is") != "false")
	})
	mux.HandleFunc("POST /hog", func(w http.ResponseWriter, r *http.Request) {
		mib, err := strconv.Atoi(r.FormValue("mib"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for range mib {
			page := make([]byte, 1<<20)
			for i := 0; i < len(page); i += 4096 {
				page[i] = 1 // memory that is not written to is not there
			}
			hoard = append(hoard, page)
		}
		fmt.Fprintf(w, "%d MiB are held\n", len(hoard))
	})
	mux.HandleFunc("POST /exit", func(w http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.FormValue("code")) // 0 without a value
		w.Header().Set("Content-Length", "0")
		_ = http.NewResponseController(w).Flush() // the client may have disconnected
		os.Exit(code)
	})
	mux.HandleFunc("GET /client", func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, host)
	})
	mux.HandleFunc("GET /hook", func(http.ResponseWriter, *http.Request) { fmt.Println("GET /hook") })
	api := newInCluster()
	mux.HandleFunc("GET /whoami", api.whoAmI)
	mux.HandleFunc("GET /ask", api.ask)
	load := &load{}
	mux.HandleFunc("POST /load", load.start)
	mux.HandleFunc("DELETE /load", load.end)
	mux.HandleFunc("GET /slow", func(w http.ResponseWriter, r *http.Request) {
		wait, err := time.ParseDuration(r.FormValue("for"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		time.Sleep(wait)
		fmt.Fprintln(w, "answered after", wait)
	})
	return mux
}
