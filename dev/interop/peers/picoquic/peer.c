/* picoquic as server or client of one connection and one request, driven through its C functions.
 *
 *   picoquic_peer serve CERT KEY LISTEN[,LISTEN] [--retry] [--at BYTES:ACTION[:N]]...
 *   picoquic_peer get|put BYTES SERVER LOCAL [--path LOCAL=SERVER]... [--at BYTES:ACTION[:N]]...
 *
 * Actions happen once, when so many bytes of content have passed here; what picoquic does not
 * permit yet is tried again. `open:N` opens the N-th `--path`, `abandon:ID`, `backup:ID` and
 * `available:ID` are about a path ID, `keys` updates the keys. With `open` at 0 the request waits
 * until the path is there.
 *
 * What happened goes to standard output, one fact a line; exit code 0 if the content was right.
 */
#include "content.h"
#include "net.h"

#include <arpa/inet.h>
#include <picoquic.h>
#include <picoquic_internal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_ACTIONS 16
#define MAX_LINE 64
/* Seconds after which a connection that has not ended is a failure. */
#define PATIENCE_S 60
/* Longest wait without looking at the actions. */
#define TICK_US 5000

struct action {
    uint64_t at;
    char what[16];
    unsigned long which;
    int is_done;
};

static struct {
    struct net net;
    picoquic_quic_t *quic;
    picoquic_cnx_t *cnx;
    struct action actions[MAX_ACTIONS];
    int action_count;
    struct sockaddr_in path_locals[MAX_SOCKETS], path_remotes[MAX_SOCKETS];
    int path_count;
    int is_client, is_put;
    /* Of the one request: its content's length, what of it went out and came in. */
    uint64_t length, sent, received;
    char line[MAX_LINE], reply[128], expected_reply[128];
    size_t line_length, reply_length, reply_sent;
    int is_answering, is_receipt, is_intact, is_asked, is_over, is_closed;
    int paths_opened, paths_wanted;
} peer = { .is_intact = 1 };

/* The content's bytes that have passed, whichever way they go. */
static uint64_t passed(void)
{
    return peer.sent > peer.received ? peer.sent : peer.received;
}

static int perform(const struct action *action, uint64_t now)
{
    if (strcmp(action->what, "open") == 0 && action->which <= (unsigned long)peer.path_count) {
        return picoquic_probe_new_path(peer.cnx,
            (struct sockaddr *)&peer.path_remotes[action->which - 1],
            (struct sockaddr *)&peer.path_locals[action->which - 1], now);
    } else if (strcmp(action->what, "abandon") == 0) {
        return picoquic_abandon_path(peer.cnx, action->which, 0, now);
    } else if (strcmp(action->what, "backup") == 0) {
        return picoquic_set_path_status(peer.cnx, action->which, picoquic_path_status_backup);
    } else if (strcmp(action->what, "available") == 0) {
        return picoquic_set_path_status(peer.cnx, action->which, picoquic_path_status_available);
    } else if (strcmp(action->what, "keys") == 0) {
        return picoquic_start_key_rotation(peer.cnx);
    }
    return -1;
}

static void act(uint64_t now)
{
    for (int i = 0; i < peer.action_count; i++) {
        struct action *action = &peer.actions[i];
        if (!action->is_done && passed() >= action->at && perform(action, now) == 0) {
            action->is_done = 1;
            printf("did %s %lu at %llu\n", action->what, action->which,
                (unsigned long long)passed());
        }
    }
}

/* A client's request, once the paths that were to be opened first are there. */
static void ask(void)
{
    char line[MAX_LINE];
    if (peer.is_asked || peer.paths_opened < peer.paths_wanted) {
        return;
    }
    peer.is_asked = 1;
    if (peer.is_put) {
        peer.reply_length = (size_t)snprintf(peer.reply, sizeof(peer.reply), "PUT /sink\r\n");
        content_receipt(peer.expected_reply, sizeof(peer.expected_reply), peer.length);
        picoquic_mark_active_stream(peer.cnx, 0, 1, NULL);
    } else {
        int length = snprintf(line, sizeof(line), "GET /bytes/%llu\r\n",
            (unsigned long long)peer.length);
        picoquic_add_to_stream(peer.cnx, 0, (uint8_t *)line, (size_t)length, 1);
    }
}

/* The bytes that arrive: of a server the request line first, of a client answer or receipt. */
static void take(const uint8_t *bytes, size_t length)
{
    while (!peer.is_client && length > 0 && !memchr(peer.line, '\n', peer.line_length)) {
        if (peer.line_length < MAX_LINE - 1) {
            peer.line[peer.line_length++] = (char)*bytes;
        }
        bytes++;
        length--;
    }
    if (peer.is_client && peer.is_put) {
        for (size_t i = 0; i < length && peer.line_length + 1 < sizeof(peer.expected_reply); i++) {
            peer.is_intact &= peer.expected_reply[peer.line_length++] == (char)bytes[i];
        }
        return;
    }
    peer.is_intact &= content_matches(bytes, length, peer.received);
    peer.received += length;
}

/* A server's answer, when the request has ended. */
static void answer(picoquic_cnx_t *cnx, uint64_t stream)
{
    unsigned long long length = 0;
    if (sscanf(peer.line, "GET /bytes/%llu", &length) == 1) {
        peer.length = length;
    } else {
        content_receipt(peer.reply, sizeof(peer.reply), peer.received);
        peer.reply_length = strlen(peer.reply);
        peer.is_receipt = 1;
    }
    picoquic_mark_active_stream(cnx, stream, 1, NULL);
}

/* Bytes for one packet: first the reply or request line, then content. */
static void give(void *context, size_t room)
{
    size_t line = peer.reply_length - peer.reply_sent;
    uint64_t content = peer.is_receipt ? 0 : peer.length - peer.sent;
    size_t head = line < room ? line : room;
    size_t body = content < room - head ? (size_t)content : room - head;
    int is_end = head == line && body == content;
    uint8_t *into = picoquic_provide_stream_data_buffer(context, head + body, is_end, !is_end);
    if (into == NULL) {
        return;
    }
    memcpy(into, peer.reply + peer.reply_sent, head);
    content_fill(into + head, body, peer.sent);
    peer.reply_sent += head;
    peer.sent += body;
}

static void on_end_of_stream(picoquic_cnx_t *cnx, uint64_t stream)
{
    if (!peer.is_client) {
        answer(cnx, stream);
        return;
    }
    peer.is_intact &= peer.is_put ? peer.line_length == strlen(peer.expected_reply)
                                  : peer.received == peer.length;
    peer.is_over = 1;
    picoquic_close(cnx, 0);
}

static int on_event(picoquic_cnx_t *cnx, uint64_t stream, uint8_t *bytes, size_t length,
    picoquic_call_back_event_t event, void *context, void *stream_context)
{
    (void)context;
    (void)stream_context;
    switch (event) {
    case picoquic_callback_stream_data:
    case picoquic_callback_stream_fin:
        take(bytes, length);
        if (event == picoquic_callback_stream_fin) {
            on_end_of_stream(cnx, stream);
        }
        break;
    case picoquic_callback_prepare_to_send:
        give(bytes, length);
        break;
    case picoquic_callback_ready:
        peer.cnx = cnx;
        printf("ready multipath %d\n", cnx->is_multipath_enabled);
        break;
    case picoquic_callback_path_available:
        printf("path %llu available\n", (unsigned long long)stream);
        peer.paths_opened += stream > 0;
        break;
    case picoquic_callback_path_suspended:
        printf("path %llu suspended\n", (unsigned long long)stream);
        break;
    case picoquic_callback_path_deleted:
        printf("path %llu deleted\n", (unsigned long long)stream);
        break;
    case picoquic_callback_close:
    case picoquic_callback_application_close:
    case picoquic_callback_stateless_reset:
        printf("closed local %#llx remote %#llx application %#llx\n",
            (unsigned long long)picoquic_get_local_error(cnx),
            (unsigned long long)picoquic_get_remote_error(cnx),
            (unsigned long long)picoquic_get_application_error(cnx));
        peer.is_closed = 1;
        peer.cnx = NULL;
        break;
    default:
        break;
    }
    return 0;
}

static void receive_all(void)
{
    uint8_t bytes[MAX_DATAGRAM];
    struct sockaddr_in from;
    picoquic_cnx_t *first = NULL;
    for (int i = 0; i < peer.net.count; i++) {
        size_t length;
        /* Not more than this at a time: what is to be sent must not wait for ever. */
        for (int n = 0; n < 64; n++) {
            length = net_receive(&peer.net, i, bytes, sizeof(bytes), &from);
            if (length == 0) {
                break;
            }
            picoquic_incoming_packet_ex(peer.quic, bytes, length, (struct sockaddr *)&from,
                (struct sockaddr *)&peer.net.locals[i], 0, 0, &first, picoquic_current_time());
        }
    }
}

static void send_all(void)
{
    uint8_t bytes[MAX_DATAGRAM];
    for (int n = 0; n < 256; n++) {
        struct sockaddr_storage to = { 0 }, from = { 0 };
        picoquic_connection_id_t cid;
        picoquic_cnx_t *cnx = NULL;
        size_t length = 0, segment = 0;
        int interface = 0;
        uint64_t now = picoquic_current_time();
        if (picoquic_prepare_next_packet_ex(peer.quic, now, bytes, sizeof(bytes), &length, &to,
                &from, &interface, &cid, &cnx, &segment) != 0 || length == 0) {
            return;
        }
        int error = net_send(&peer.net, bytes, length, *(struct sockaddr_in *)&from,
            *(struct sockaddr_in *)&to);
        if (error != 0 && cnx != NULL) {
            picoquic_notify_destination_unreachable(cnx, now, (struct sockaddr *)&to,
                (struct sockaddr *)&from, interface, error);
        }
    }
}

static int run(void)
{
    uint64_t until = picoquic_current_time() + PATIENCE_S * 1000000ull;
    uint64_t now = 0;
    /* A client is through when its close has gone out, a server when it has come in. */
    while (!peer.is_closed && (now = picoquic_current_time()) < until) {
        receive_all();
        if (peer.cnx != NULL) {
            act(now);
            if (peer.is_client) {
                ask();
            }
        }
        send_all();
        if (peer.is_over) {
            peer.is_closed = 1;
        }
        int64_t wait = picoquic_get_next_wake_delay(peer.quic, picoquic_current_time(), TICK_US);
        net_wait(&peer.net, wait > 0 ? wait : 0);
    }
    net_report(&peer.net);
    printf("content sent %llu received %llu intact %d\n", (unsigned long long)peer.sent,
        (unsigned long long)peer.received, peer.is_intact);
    return peer.is_closed && peer.is_intact && (!peer.is_client || peer.is_over) ? 0 : 1;
}

static int usage(const char *problem)
{
    fprintf(stderr, "picoquic_peer: %s\n", problem);
    return 2;
}

/* Options after the fixed words. Returns 0 or an exit code. */
static int options(int argc, char **argv, int *retry)
{
    for (int i = 0; i < argc; i++) {
        char *equals = i + 1 < argc ? strchr(argv[i + 1], '=') : NULL;
        if (strcmp(argv[i], "--retry") == 0) {
            *retry = 1;
        } else if (strcmp(argv[i], "--path") == 0 && equals && peer.path_count + 1 < MAX_SOCKETS) {
            struct sockaddr_in *local = &peer.path_locals[peer.path_count];
            *equals = 0;
            if (net_address(argv[++i], local) != 0 ||
                net_address(equals + 1, &peer.path_remotes[peer.path_count]) != 0) {
                return usage("--path wants LOCAL=SERVER");
            }
            int socket = net_open(&peer.net, *local);
            if (socket < 0) {
                return usage("cannot bind the address of a --path");
            }
            peer.path_locals[peer.path_count++] = peer.net.locals[socket];
        } else if (strcmp(argv[i], "--at") == 0 && i + 1 < argc &&
            peer.action_count < MAX_ACTIONS) {
            struct action *action = &peer.actions[peer.action_count++];
            unsigned long long at = 0;
            if (sscanf(argv[++i], "%llu:%15[a-z]:%lu", &at, action->what, &action->which) < 2) {
                return usage("--at wants BYTES:ACTION[:N]");
            }
            action->at = at;
            peer.paths_wanted += at == 0 && strcmp(action->what, "open") == 0;
        } else {
            return usage("unknown or too many options");
        }
    }
    return 0;
}

static int create(const char *cert, const char *key, int retry)
{
    peer.quic = picoquic_create(4, cert, key, NULL, "hq-interop", on_event, NULL, NULL, NULL, NULL,
        picoquic_current_time(), NULL, NULL, NULL, 0);
    if (peer.quic == NULL) {
        return usage("picoquic refuses certificate or key");
    }
    picoquic_set_default_multipath_option(peer.quic, 1);
    picoquic_enable_path_callbacks_default(peer.quic, 1);
    picoquic_set_default_congestion_algorithm_by_name(peer.quic, "cubic");
    picoquic_set_null_verifier(peer.quic);
    if (retry) {
        picoquic_set_cookie_mode(peer.quic, 1);
    }
    return 0;
}

static int serve(int argc, char **argv)
{
    int retry = 0, failed;
    for (char *listen = strtok(argv[2], ","); listen != NULL; listen = strtok(NULL, ",")) {
        struct sockaddr_in address;
        if (net_address(listen, &address) != 0 || net_open(&peer.net, address) < 0) {
            return usage("cannot listen there");
        }
    }
    if ((failed = options(argc - 3, argv + 3, &retry)) != 0 ||
        (failed = create(argv[0], argv[1], retry)) != 0) {
        return failed;
    }
    printf("listening %s:%u\n", inet_ntoa(peer.net.locals[0].sin_addr),
        ntohs(peer.net.locals[0].sin_port));
    return run();
}

static int fetch(int argc, char **argv)
{
    struct sockaddr_in server, local;
    int retry = 0, failed;
    peer.is_client = 1;
    peer.is_put = strcmp(argv[0], "put") == 0;
    peer.length = strtoull(argv[1], NULL, 10);
    if (net_address(argv[2], &server) != 0 || net_address(argv[3], &local) != 0 ||
        net_open(&peer.net, local) < 0) {
        return usage("server or local address");
    }
    if ((failed = options(argc - 4, argv + 4, &retry)) != 0 ||
        (failed = create(NULL, NULL, 0)) != 0) {
        return failed;
    }
    picoquic_cnx_t *cnx = picoquic_create_client_cnx(peer.quic, (struct sockaddr *)&server,
        picoquic_current_time(), 1, "localhost", "hq-interop", on_event, NULL);
    if (cnx == NULL) {
        return usage("picoquic cannot start a connection");
    }
    return run();
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    alarm(PATIENCE_S + 5);
    if (argc >= 5 && strcmp(argv[1], "serve") == 0) {
        return serve(argc - 2, argv + 2);
    }
    if (argc >= 5 && (strcmp(argv[1], "get") == 0 || strcmp(argv[1], "put") == 0)) {
        return fetch(argc - 1, argv + 1);
    }
    return usage("expected serve, get or put; the head of peer.c says how");
}
