"""The acknowledged stream over a serial line: lines that lose, change, repeat and mix what they carry."""

import asyncio
import contextlib
import itertools
import os
import random
import socket
import struct
import subprocess
import tty

import pytest

from virtgauge.agent import find_agent
from virtgauge.agent.channel import Channel, ChannelClosedError
from virtgauge.agent.messages import ProtocolError
from virtgauge.agent.serial import (
    GIVE_UP_AFTER_S,
    LONGEST,
    MARK,
    REPEAT_AFTER_S,
    Kind,
    Packet,
    Scanner,
    SerialLink,
    serial_streams,
)

START = 2**32 - 100
OFFER = struct.pack(">BH", 2, 2048)


def packets(line):
    return Scanner().feed(line)


def opened_link():
    link = SerialLink()
    link.receive(Packet(Kind.OPEN, START, 0, OFFER), 0.0)
    (answer,) = packets(link.take_output())
    assert (answer.kind, answer.position, answer.acknowledged) == (Kind.OPEN, START, START)
    return link


def test_packets_are_found_amid_noise_and_however_they_are_cut():
    sent = [Packet(Kind.DATA, START, 7, bytes([n % 256]) * n) for n in (0, 1, LONGEST)]
    line = b"".join(b"[    0.1] a kernel \xd5 speaks\n" + packet.encode() for packet in sent) + MARK
    for size in (1, 2, 7, 500, len(line)):
        scanner, found, noise = Scanner(), [], b""
        for begin in range(0, len(line), size):
            found += scanner.feed(line[begin : begin + size])
            noise += scanner.noise
        assert found == sent
        assert noise == b"[    0.1] a kernel \xd5 speaks\n" * 3


def test_a_wrong_bit_anywhere_loses_this_packet_and_no_other():
    first, second = Packet(Kind.DATA, 1, 2, b"abc").encode(), Packet(Kind.DATA, 4, 2, b"def")
    for bit in range(8 * len(first)):
        broken = bytearray(first)
        broken[bit // 8] ^= 1 << (bit % 8)
        assert packets(bytes(broken) + second.encode()) == [second], "a length that claims too much hides nothing"


def test_no_byte_that_a_console_keeps_for_itself_is_on_the_line():
    kept = b"\x0f\x11\x13\x1d\xd5"
    for payload in (bytes(range(256)), kept * 9, b"\x7d" * 5, b"\x7d\x2f\x7d"):
        packet = Packet(Kind.DATA, 0x0F111D13, 0xD57D0F0F, payload)
        line = packet.encode()
        assert not set(line[1:]) & set(kept)
        assert packets(line) == [packet]


def test_nothing_is_sent_before_the_agent_asks_and_then_only_what_it_takes():
    link = SerialLink()
    link.write(b"x" * 5000, 0.0)
    assert link.take_output() == b""
    assert link.receive(Packet(Kind.DATA, 5, 6, b"not yet"), 0.0) == b""
    link.receive(Packet(Kind.OPEN, START, 0, OFFER), 0.0)
    _, *data = packets(link.take_output())
    assert [len(packet.payload) for packet in data] == [1024, 1024]
    assert [packet.position for packet in data] == [START, (START + 1024) % 2**32]
    link.receive(Packet(Kind.DATA, START, (START + 1024) % 2**32), 0.0)
    (more,) = packets(link.take_output())
    assert (more.position, len(more.payload)) == ((START + 2048) % 2**32, 1024)


def test_what_is_not_confirmed_is_repeated_ever_more_rarely_and_then_given_up():
    link = opened_link()
    link.write(b"question", 0.0)
    (sent,) = packets(link.take_output())
    due = []
    with pytest.raises(ProtocolError, match="confirmed nothing"):
        while True:
            due.append(link.deadline)
            link.tick(link.deadline)
            assert packets(link.take_output()) == [sent]
    assert due[0] == REPEAT_AFTER_S
    gaps = [after - before for before, after in itertools.pairwise(due)]
    assert gaps == sorted(gaps)
    assert GIVE_UP_AFTER_S <= due[-1] < GIVE_UP_AFTER_S + 10


def test_a_repeated_confirmation_tells_of_a_loss_and_is_believed_once():
    link = opened_link()
    link.write(b"x" * 2000, 0.0)
    sent = packets(link.take_output())
    again = Packet(Kind.DATA, START, START)
    link.receive(again, 0.1)
    assert packets(link.take_output()) == sent
    link.receive(again, 0.1)
    assert link.take_output() == b""


def test_another_version_or_another_start_ends_the_link():
    with pytest.raises(ProtocolError, match="version 2"):
        SerialLink().receive(Packet(Kind.OPEN, START, 0, b"\x01\x08\x00"), 0.0)
    link = opened_link()
    link.receive(Packet(Kind.OPEN, START, 0, OFFER), 0.0)
    assert packets(link.take_output())[0].kind is Kind.OPEN, "its first answer was lost"
    with pytest.raises(ProtocolError, match="began anew"):
        link.receive(Packet(Kind.OPEN, START + 1, 0, OFFER), 0.0)


class Line:
    """A serial line between the real agent, on a terminal, and the controller; what it does to bytes is settable."""

    def __init__(self):
        self.master, self.slave = os.openpty()
        tty.setraw(self.master)
        self.agent = subprocess.Popen(
            [find_agent().path, "--channel", os.ttyname(self.slave)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        os.set_blocking(self.master, False)
        self.ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        self.theirs, self.spoil = theirs, lambda data: data
        loop = asyncio.get_running_loop()
        loop.add_reader(self.master, self._outward)
        loop.add_reader(theirs, self._inward)

    def _outward(self):
        try:
            data = os.read(self.master, 65536)
        except OSError:  # the agent has ended
            data = b""
        self._keep_open_no_more()
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            self.theirs.send(self.spoil(data))
        if not data:
            self.hang_up()

    def _inward(self):
        data = self.theirs.recv(4096)
        with contextlib.suppress(BlockingIOError):
            os.write(self.master, self.spoil(data))
        if not data:
            self.hang_up()

    def _keep_open_no_more(self):
        """A terminal that nobody has open is hung up; from now on, the agent has it."""
        if self.slave >= 0:
            os.close(self.slave)
            self.slave = -1

    def hang_up(self):
        self._keep_open_no_more()
        if self.master >= 0:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self.master)
            loop.remove_reader(self.theirs)
            self.theirs.close()
            os.close(self.master)
            self.master = -1


@contextlib.asynccontextmanager
async def agent_on_a_line(spoil=None, on_noise=None):
    line = Line()
    if spoil is not None:
        line.spoil = spoil
    reader, writer = serial_streams(*await asyncio.open_connection(sock=line.ours), on_noise)
    try:
        channel = await Channel.open(reader, writer, find_agent().sha256, 30.0)
        yield line, channel
        await channel.shutdown()
        line.agent.wait(10)
    finally:
        writer.close()
        await asyncio.sleep(0)
        line.hang_up()
        line.agent.kill()
        line.agent.communicate()


async def echo(channel, size):
    """That many bytes to the agent, and as many back."""
    text = "".join(random.Random(size).choices("abcdefgh", k=size))
    reply = await channel.request(
        "run", argv=["printenv", "TEXT"], env={"TEXT": text}, timeout_ms=60_000, output_limit=10**6, timeout_s=60
    )
    assert reply.value["stdout"].decode() == text + "\n"


async def test_the_agent_speaks_over_a_terminal_and_ends_in_order():
    async with agent_on_a_line() as (line, channel):
        assert (await channel.facts())["agent_sha256"] == find_agent().sha256
        await echo(channel, 100_000)
    assert line.agent.returncode == 0


@pytest.mark.slow
async def test_nothing_is_lost_on_a_line_that_loses_changes_repeats_and_mixes():
    pieces, invalid = itertools.count(), []

    def spoil(data):
        number = next(pieces)
        if number % 10 or not data:
            return data
        fate = number // 10 % 4
        invalid.append(fate)
        if fate == 0:
            return b""
        if fate == 1:
            return data[: len(data) // 2] + b"?" + data[len(data) // 2 + 1 :]
        return data + data if fate == 2 else b"[  0.5] eth0: link up\r\n" + data

    noise = bytearray()
    async with agent_on_a_line(spoil, noise.extend) as (_, channel):
        for _ in range(50):
            for size in (1, 1000, 20_000):
                await echo(channel, size)
            if len(set(invalid)) == 4 and b"eth0: link up" in noise:
                return
    pytest.fail(f"of the four ways to spoil, {set(invalid)} happened, and as noise came {bytes(noise)!r}")


async def test_what_a_console_takes_for_a_command_to_the_kernel_loses_nothing():
    """Linux's hypervisor consoles do so with ^O and the byte after it, and a session has a message number 15."""
    pressed = False

    def spoil(data):
        nonlocal pressed
        passed = bytearray()
        for byte in data:
            if pressed or byte == 0x0F:
                pressed = not pressed
            else:
                passed.append(byte)
        return bytes(passed)

    async with agent_on_a_line(spoil) as (_, channel):
        for _ in range(20):
            await channel.facts(5.0)


async def test_a_line_that_is_hung_up_ends_channel_and_agent():
    async with agent_on_a_line() as (line, channel):
        waiting = asyncio.create_task(
            channel.request("run", argv=["sleep", "60"], env={}, timeout_ms=90_000, output_limit=0)
        )
        await channel.facts()
        line.hang_up()
        with pytest.raises(ChannelClosedError):
            await asyncio.wait_for(waiting, 10)
        assert await asyncio.to_thread(line.agent.wait, 10) in (0, 4), "idle, or while it said something"


async def test_an_agent_that_is_killed_ends_the_channel():
    async with agent_on_a_line() as (line, channel):
        line.agent.kill()
        with pytest.raises(ChannelClosedError):
            while True:
                await channel.facts()
