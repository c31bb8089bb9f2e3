// What `speed.rs` measures, done by ns-3: two links, one bulk TCP flow over each, a number of bytes
// in all. A packet is one that crossed one link, data and acknowledgements alike; processor time is
// that of the simulation, without start-up. docs/benchmarks.md tells how to build and run it.

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <cstdio>
#include <ctime>
#include <string>
#include <sys/resource.h>

using namespace ns3;

static const uint16_t PORT = 5001;

// The windows are large enough for the wider links, so that only the network limits the flows.
static const uint32_t BUFFER = 16 << 20;

static uint64_t packets = 0;
static uint64_t received = 0;
static uint64_t wanted = 0;

static void
OnSent(Ptr<const Packet>)
{
    packets++;
}

static void
OnReceived(Ptr<const Packet> packet, const Address&)
{
    received += packet->GetSize();
    if (received >= wanted)
    {
        Simulator::Stop();
    }
}

struct Case
{
    const char* name;
    const char* rate;
    const char* delay;
    const char* queue;
    uint64_t bytes;
};

static const Case CASES[] = {
    {"base", "10Mbps", "50ms", "100p", 100000000},
    {"fast", "100Mbps", "50ms", "1000p", 1000000000},
    {"gig", "1Gbps", "10ms", "1000p", 1000000000},
};

// One link between two hosts of its own, and a flow over it.
static void
AddPath(const Case& what, int index)
{
    NodeContainer hosts;
    hosts.Create(2);
    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", StringValue(what.rate));
    link.SetChannelAttribute("Delay", StringValue(what.delay));
    link.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue(what.queue));
    NetDeviceContainer devices = link.Install(hosts);
    InternetStackHelper().Install(hosts);
    // The queue of the link alone: what the system's queueing discipline would add stays away.
    Ipv4AddressHelper addresses;
    addresses.SetBase(("10.0." + std::to_string(index) + ".0").c_str(), "255.255.255.0");
    Ipv4InterfaceContainer interfaces = addresses.Assign(devices);
    TrafficControlHelper().Uninstall(devices);
    for (uint32_t i = 0; i < devices.GetN(); i++)
    {
        devices.Get(i)->TraceConnectWithoutContext("PhyTxEnd", MakeCallback(&OnSent));
    }

    PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), PORT));
    ApplicationContainer receiver = sink.Install(hosts.Get(1));
    receiver.Get(0)->TraceConnectWithoutContext("Rx", MakeCallback(&OnReceived));
    InetSocketAddress to(interfaces.GetAddress(1), PORT);
    BulkSendHelper source("ns3::TcpSocketFactory", to);
    source.SetAttribute("MaxBytes", UintegerValue(what.bytes / 2));
    source.SetAttribute("SendSize", UintegerValue(1448));
    source.Install(hosts.Get(0));
}

int
main(int argc, char** argv)
{
    const std::string name = argc > 1 ? argv[1] : "base";
    for (const Case& what : CASES)
    {
        if (name != what.name)
        {
            continue;
        }
        Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpCubic::GetTypeId()));
        Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));
        Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(BUFFER));
        Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(BUFFER));
        AddPath(what, 1);
        AddPath(what, 2);
        wanted = what.bytes;
        const std::clock_t began = std::clock();
        Simulator::Run();
        const double cpu = double(std::clock() - began) / CLOCKS_PER_SEC;
        struct rusage usage;
        getrusage(RUSAGE_SELF, &usage);
        std::printf("%s: %.3f s of processor time, %.2f s simulated, %lu packets, %.0f packets/s, "
                    "%.1f MiB, %lu bytes received\n",
                    what.name,
                    cpu,
                    Simulator::Now().GetSeconds(),
                    (unsigned long)packets,
                    double(packets) / cpu,
                    double(usage.ru_maxrss) / 1024,
                    (unsigned long)received);
        Simulator::Destroy();
        return 0;
    }
    std::fprintf(stderr, "error: `%s` is no case; there are base, fast and gig\n", name.c_str());
    return 2;
}
